"""The program with which tf_profile waits for JAX's devices: it is no part of any step."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.stat_columns import key_field
from pytest_tfperf.trace.xspace import Plane, once
from pytest_tfperf.values import WAITS

_MODULE = "hlo_module"
_REF_VALUE = b"\x38"
"""The tag of XStat's ref_value = 7, a varint."""


def without_waits(ops: Events) -> Events:
    """Return ops of devices, or of the host, but those of the program that waits."""
    rows = _waiting(ops.plane)
    return ops.where(~np.isin(ops.rows, rows)) if rows.size else ops


def outside_waits(host: Events, runs: Events) -> Events:
    """Return executions on the host, but those that a call of the program that waits launched."""
    calls = host.named(lambda name: WAITS in name)
    return runs.where(enclosing(calls, runs) < 0) if len(calls) else runs


@once
def _waiting(plane: Plane) -> Ints:
    """
    Return the rows of the ops of the program that waits.

    The profiler keeps a module's name once, among the names of stats, and ops refer to it. So their
    bytes are searched for: a trace may have millions of other ops.
    """
    names = plane.stat_names.items()
    stats = [key_field(key) for key, name in names if name == _MODULE]
    texts = [key_field(key)[1:] for key, name in names if WAITS in name]
    patterns = [stat + _REF_VALUE + text for stat in stats for text in texts]
    if not patterns or not plane.start_ps.size:
        return np.empty(0, np.int64)
    rows = np.unique(np.concatenate([Events.of(plane).with_bytes(one) for one in patterns]))
    modules = Events(plane, rows).texts(_MODULE)
    found: Ints = rows[np.array([WAITS in module for module in modules], bool)]
    return found
