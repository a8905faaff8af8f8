"""Rules of the Cloud TPU op guide, applied to a step's graph."""
