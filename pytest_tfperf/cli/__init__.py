"""The `tfperf` command."""
