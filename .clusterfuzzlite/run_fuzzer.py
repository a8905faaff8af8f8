"""Fuzz run files: show, report, compare, accept."""

from guided import fuzz

fuzz("runs", "run")
