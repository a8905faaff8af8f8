"""Host activity: ops, functions, memory."""
