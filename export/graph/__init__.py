"""Writes the canonical graph of a model from its configuration and its tensors."""
