"""Baselines: stored values, and comparisons with them."""
