"""Lets processes that tests start lose no time with walks of the garbage collector over all that is imported."""

import gc

import pytest

_ENOUGH = 100_000  # objects: a run without TensorFlow makes fewer after its start

gc.set_threshold(_ENOUGH)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart():
    """Leave what is imported out of the collections with which pytest ends a run."""
    gc.freeze()
