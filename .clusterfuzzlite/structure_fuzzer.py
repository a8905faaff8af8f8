"""Fuzz baselines of structure: comparison and accept."""

from guided import fuzz

fuzz("baselines", "structure")
