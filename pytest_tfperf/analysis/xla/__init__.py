"""XLA executables: runs, compilations, costs."""
