"""Measuring a loaded model: what is timed, how often, and what the figures are compared with.

Nothing here judges a figure or prints it.
"""
