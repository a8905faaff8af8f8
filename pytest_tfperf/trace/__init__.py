"""Traces as columns of numbers."""
