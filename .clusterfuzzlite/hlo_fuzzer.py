"""Fuzz HLO text: padding."""

from guided import fuzz

fuzz("hlo", "hlo")
