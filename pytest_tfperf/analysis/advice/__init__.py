"""Advice on what to do next, its thresholds, and the guides that it refers to."""
