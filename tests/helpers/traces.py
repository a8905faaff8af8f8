"""
Stored traces: the project's own in tests/data, real ones of other projects in the folder that TFPERF_TRACES names.

Tests of real traces skip where the variable is not set.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import DATA

from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.trace.xspace import read_trace

VARIABLE = "TFPERF_TRACES"
SYNTHETIC = DATA / "traces"


def whole(trace):
    """One step that lasts as long as the trace."""
    ends = [
        int((part.start_ps + part.duration_ps).max()) for part in trace.planes if part.start_ps.size
    ]
    return Steps(np.array([-(10**15)]), np.array([max(ends) + 1]), ("all",), "all", 0)


def real_trace(name):
    """The path of a real trace; skips the test where the variable is not set, fails it where the file is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder of real traces")
    path = Path(folder) / f"{name}.xplane.pb"
    if not path.exists():
        path = next(path.parent.glob(f"{path.name}.gz"), path)
    assert path.exists(), f"{VARIABLE} names a folder without {path.name}"
    return path


def real(name):
    """A real trace and its one step."""
    return _read(real_trace(name))


@cache
def _read(path):
    trace = read_trace(path)
    return trace, whole(trace)
