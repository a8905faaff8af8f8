"""Padding and the op guide of TPUs, and what suits the tensor cores of GPUs."""
