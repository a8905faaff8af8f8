"""Unit tests load no TensorFlow; this fails those that do."""

import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parent


def pytest_collection_finish(session):
    """Fail a run of unit tests alone whose modules have loaded TensorFlow."""
    alone = session.items and all(item.path.is_relative_to(UNIT) for item in session.items)
    if alone and "tensorflow" in sys.modules:
        raise pytest.UsageError("a module of tests/unit imports TensorFlow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test that is the first to load TensorFlow."""
    loaded = "tensorflow" in sys.modules
    result = yield
    assert loaded or "tensorflow" not in sys.modules, "TensorFlow belongs to tests/tensorflow"
    return result
