"""The program with which tf_profile waits for JAX's devices: it is no part of any step."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.xspace import Plane, once
from pytest_tfperf.values import WAITS


def without_waits(ops: Events) -> Events:
    """Return ops of devices, or of the host, but those of the program that waits."""
    if not _mentions_waits(ops.plane):
        return ops
    return ops.where(np.array([WAITS not in module for module in ops.texts("hlo_module")], bool))


def outside_waits(host: Events, runs: Events) -> Events:
    """Return executions on the host, but those that a call of the program that waits launched."""
    calls = host.named(lambda name: WAITS in name)
    return runs.where(enclosing(calls, runs) < 0) if len(calls) else runs


@once
def _mentions_waits(plane: Plane) -> bool:
    # the profiler keeps a module's name once, among the names of stats, and ops refer to it
    return any(WAITS in name for name in plane.stat_names.values())
