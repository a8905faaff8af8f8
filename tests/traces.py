"""The stored traces, where they are at hand; where they are not, tests skip, and in CI fail."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.trace.xspace import read_trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"


def whole(trace):
    """One step that lasts as long as the trace."""
    ends = [
        int((part.start_ps + part.duration_ps).max()) for part in trace.planes if part.start_ps.size
    ]
    return Steps(np.array([-(10**15)]), np.array([max(ends) + 1]), ("all",), "all", 0)


def stored(name):
    """The path of a file or folder of these traces; skips the test, or in CI fails it, where there is none."""
    path = TRACES / name
    if not path.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is needed where this runs in CI")
        pytest.skip(f"there is no {path}")
    return path


def real(name):
    """A real trace and its one step."""
    return _read(stored(f"{name}.xplane.pb"))


@cache
def _read(path):
    trace = read_trace(path)
    return trace, whole(trace)
