"""Fuzz traces: commands and exports."""

from guided import fuzz

fuzz("traces", "trace")
