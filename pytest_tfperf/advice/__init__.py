"""Remedies, by what they are of."""
