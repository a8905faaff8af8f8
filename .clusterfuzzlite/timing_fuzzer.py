"""Fuzz baselines of step times: comparison and accept."""

from guided import fuzz

fuzz("baselines", "timing")
