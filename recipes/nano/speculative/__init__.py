"""Speculative decoding for nano: MTP head, DSpark draft, and how often their tokens are kept."""
