"""Stores of runs and traces, in objects of any file system or in PostgreSQL."""

MOST_ROWS = 5_000_000
"""Rows that are read at most; a hostile object of a few bytes can claim more."""
