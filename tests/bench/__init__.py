"""Benchmarks run by hand; not collected by pytest."""
