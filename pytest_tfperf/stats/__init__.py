"""Statistics: tests, intervals, steady state."""
