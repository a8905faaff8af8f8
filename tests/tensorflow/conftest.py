"""Tests of real TensorFlow, whose objects are frozen after each test."""

import platform

import numpy.testing  # noqa: F401  # NumPy 1.26 starts `lscpu`, as the first test of it would
import pytest

from pytest_tfperf.machine import memory

platform.processor()  # starts `uname`, once: h5py asks for it as soon as a test imports Keras


@pytest.fixture(autouse=True)
def objects_are_frozen(monkeypatch):
    """Answer without counting: `gc.get_freeze_count` walks a million objects, in every timed window."""
    monkeypatch.setattr(memory, "_any_frozen", lambda: True)
