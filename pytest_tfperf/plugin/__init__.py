"""The pytest plugin: options, marker, fixture, verdicts and what a run reports."""
