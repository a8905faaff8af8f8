"""Fuzz the lists of baselines that explain changes: comparison and accept."""

from guided import fuzz

fuzz("baselines", "detail")
