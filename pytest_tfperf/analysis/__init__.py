"""Pure functions from a trace to what it says about the steps."""
