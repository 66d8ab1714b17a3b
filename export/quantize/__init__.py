"""Quantizing a checkpoint."""
