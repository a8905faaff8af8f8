"""pytest-tfperf: the performance of TensorFlow models, under test."""

__version__ = "0.1.0"
