"""Children of a test run, and their turns: pytest in other processes, and what is done in them."""
