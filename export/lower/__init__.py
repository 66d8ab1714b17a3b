"""Rewrites the canonical graph for one kind of executor."""
