"""Unit tests start no process and load no TensorFlow; this fails those that do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parent


def pytest_collection_finish(session):
    """Fail a run of unit tests alone whose modules have loaded TensorFlow."""
    alone = all(item.path.is_relative_to(UNIT) for item in session.items)
    if alone and "tensorflow" in sys.modules:
        raise pytest.UsageError("a module of tests/unit imports TensorFlow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """
    Fail a test that starts a process, or is the first to load TensorFlow.

    The shell script that stands for Graphviz's dot is an exception.
    """
    loaded = "tensorflow" in sys.modules
    with pytest.MonkeyPatch.context() as patch:
        if "fake_graphviz" not in item.fixturenames:
            patch.setattr(subprocess.Popen, "__init__", _started)
            patch.setattr(os, "fork", _started)
        result = yield
    assert loaded or "tensorflow" not in sys.modules, "TensorFlow belongs to tests/tensorflow"
    return result


def _started(*arguments, **options):
    pytest.fail("processes belong to tests/processes")
