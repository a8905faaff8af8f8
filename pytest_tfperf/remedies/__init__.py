"""Remedies of a slow step, tried and measured on the same step and data."""
