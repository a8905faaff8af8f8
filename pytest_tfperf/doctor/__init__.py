"""Checks that a machine can measure."""
