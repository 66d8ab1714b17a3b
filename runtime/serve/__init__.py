"""The runtime as a service: an engine that a few users share, and the APIs in front of it.

`engine` and `answer` need nothing but the runtime; everything that speaks HTTP needs the extra
`serve`.
"""
