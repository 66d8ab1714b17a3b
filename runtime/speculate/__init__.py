"""Speculative decoding: a drafter guesses tokens, the target verifies several in one step.

The text stays that of plain decoding, and sampled text keeps its distribution, whatever the
drafter guesses (Leviathan et al. 2023, arXiv:2211.17192).
"""
