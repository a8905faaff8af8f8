"""Limits on metrics: parsing and checking."""
