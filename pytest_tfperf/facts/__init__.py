"""Facts of one trace: each is computed once, by a function that knows no metric."""
