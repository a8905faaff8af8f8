"""A plugin that prints at the very end which frameworks this process has imported."""

import sys


def pytest_unconfigure(config):
    """After the end of the session, when its results are written."""
    names = [name for name in ("jax", "keras", "tensorflow", "torch") if name in sys.modules]
    sys.stdout.write(f"\nimported: {' '.join(names)}\n")
