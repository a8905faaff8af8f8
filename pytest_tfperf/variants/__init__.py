"""Variants of a step, measured alternately and compared."""
