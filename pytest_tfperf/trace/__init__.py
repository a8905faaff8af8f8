"""Trace files as columns of numbers."""
