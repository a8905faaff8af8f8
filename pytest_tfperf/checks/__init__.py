"""Limits: how they are written, and whether values keep them."""
