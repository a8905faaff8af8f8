"""Differences between two profiles of one step."""
