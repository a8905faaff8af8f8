"""The input pipeline: stages, waits, padding in batches."""
