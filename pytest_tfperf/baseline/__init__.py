"""Stored values: where they are kept, and how a new one compares."""
