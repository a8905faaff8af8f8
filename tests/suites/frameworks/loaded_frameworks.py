"""A plugin that loads frameworks fast, and prints at the very end which ones this process has imported."""

import sys

import pytest

from pytest_tfperf.garbage_collector import OF_IMPORTS, garbage_held_off


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while the modules import frameworks."""
    with garbage_held_off(OF_IMPORTS):
        return (yield)


def pytest_unconfigure(config):
    """After the end of the session, when its results are written."""
    names = [name for name in ("jax", "keras", "tensorflow", "torch") if name in sys.modules]
    sys.stdout.write(f"\nimported: {' '.join(names)}\n")
