"""Traces of running jobs, from the profiler servers of their processes."""
