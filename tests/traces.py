"""The recorded traces, each as one step, where they are at hand."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pytest_tfperf.analysis.steps import Steps
from pytest_tfperf.trace.xspace import read_trace

TRACES = Path(__file__).parents[2] / "shared" / "traces"


def whole(trace):
    """One step that lasts as long as the trace."""
    ends = [int((part.start_ps + part.duration_ps).max()) for part in trace.planes if part.start_ps.size]
    return Steps(np.array([-(10**15)]), np.array([max(ends) + 1]), ("all",), "all", 0)


def real(name):
    """A trace and its one step; skips the test, or in CI fails it, where the trace is not."""
    path = TRACES / f"{name}.xplane.pb"
    if not path.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is needed where this runs in CI")
        pytest.skip(f"no trace at {path}")
    return _read(path)


@cache
def _read(path):
    trace = read_trace(path)
    return trace, whole(trace)
