"""Accelerators: kernels, launches, op profile, roofline."""
