"""The working tree against a git ref: the same tests in two processes that take turns."""
