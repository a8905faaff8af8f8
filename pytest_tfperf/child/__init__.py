"""pytest in a child process: start, messages, shutdown."""
