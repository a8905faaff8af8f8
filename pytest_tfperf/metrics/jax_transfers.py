"""Find the arrays that steps of JAX pass to devices and read back, and count them on a CPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from pytest_tfperf.advice.step_remedies import lines_of, transfer_remedy
from pytest_tfperf.facts.host_activity import only_own
from pytest_tfperf.metrics.counts import counted_by, per_step
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.validity import elsewhere
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.host_events import called_function, jax_calls
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Unknown, Value

COPIES, BYTES = "host_device_copies", "host_device_bytes"
_PUTS = ("DevicePut", "DevicePutWithSharding")
"""Events of an array on its way to devices (jaxlib 0.6 to 0.11): an argument, an explicit put."""
_READS = ("np.asarray(jax.Array)",)
"""Events of an array that JAX gives to Python (jaxlib 0.6 to 0.11)."""
EXPLICIT_PUT = "stage"
"""Name of JAX's function that puts an array, as `jnp.asarray` of NumPy's does (jax/_src, 0.10)."""
_READ_BY = re.compile(
    r"jax/_src/(array\.py:.*(_value|__array__|__(int|float|bool|index|complex)__|tolist|item)$|"
    r"array_methods\.py:_item|api\.py:device_get)"
)
"""Functions of JAX with which Python reads an array."""
_BETWEEN_DEVICES = (
    "CopyToMemorySpace_Direct",
    "CopyToMemorySpace",
    "TfrtCpuBuffer::CopyToDevice",
)
"""Events within a put of an array that is on a device already (jaxlib 0.11, 0.10 and 0.6)."""
_NONE_SHOWN = (
    "the trace has no event of a transfer of JAX, and does not tell whether its version has them"
)
_ELSEWHERE = "another thread passed or read arrays while the steps ran"
_ITEM = "jax/_src/numpy/array_methods.py:_item"
"""JAX's function of `x.item()` (0.6 to 0.11), in which NumPy reads an array on one CPU in place."""
_OF_SEVERAL = "jax/_src/array.py:__array__"
"""JAX's function that NumPy calls for an array on several devices, which has an event."""
_UNCOUNTED = (
    "the trace does not show `x.item()`, and the steps in which calls of Python are counted did "
    "not run"
)
_UNEQUAL = "not every step calls `x.item()`, which the trace does not show"
_MIXED = "`x.item()` was called where NumPy reads arrays of several devices, which may be its own"
_NO_SIZE = "JAX does not say how large the {} arrays are that steps on a CPU pass or read"


def jax_transfers(evidence: Evidence, trace: Trace) -> dict[str, Value]:
    """
    Return host_device_copies and host_device_bytes of a step of JAX on a CPU.

    Each array counts once, whatever the number of devices that it goes to. The counts are those of
    `jax.transfer_guard`, which logs the same transfers to a device. `x.item()` leaves no event on a
    CPU, so the steps whose calls of Python are counted tell it.

    Args:
        evidence: The evidence of the trace.
        trace: The trace of the steps, which has no accelerator.
    """
    puts, reads = _transfers(trace)
    why = evidence.why_xla_unknown
    if why is None and not evidence.in_process and not len(puts) + len(reads):
        why = _NONE_SHOWN
    if why is None and any(len(elsewhere(evidence, events)) for events in (puts, reads)):
        why = _ELSEWHERE
    if why:
        return {name: Value.unknown(name, why) for name in (COPIES, BYTES)}
    steps = evidence.launched
    items = _items(evidence) if evidence.in_process else 0
    if isinstance(items, Unknown):
        return {name: Value.unknown(name, items.why) for name in (COPIES, BYTES)}
    puts, reads = (events.where(steps.of(events.start) >= 0) for events in (puts, reads))
    counts = np.bincount(steps.of(np.concatenate([puts.start, reads.start])), minlength=len(steps))
    counts += items * (1 if steps.sizes is None else np.maximum(steps.sizes, 1))
    copies = per_step(COPIES, counts, steps.sizes, **transfer_cause(evidence, trace, items))
    if counts.any():
        return {COPIES: copies, BYTES: Value.unknown(BYTES, _NO_SIZE.format(int(counts.sum())))}
    return {COPIES: copies, BYTES: per_step(BYTES, counts, steps.sizes)}


def transfer_cause(evidence: Evidence, trace: Trace, items: int = 0) -> dict[str, Any]:
    """
    Return `where`, `try` and callers for the arrays that steps of JAX pass and read, if they do.

    Args:
        evidence: The evidence of the trace.
        trace: The trace of the steps.
        items: Calls of `x.item()` in each step that the trace does not show.
    """
    steps, own = evidence.launched, only_own(evidence.recording.own_functions)
    puts, reads = (events.where(steps.of(events.start) >= 0) for events in _transfers(trace))
    n_reads = len(reads) + items * steps.n_steps
    if not len(puts) + n_reads:
        return {}
    callers = _callers(Events.of(trace.plane(HOST)), puts, own)
    lines = lines_of(one for one in evidence.recording.stacks if _READ_BY.match(one.called))
    cause = transfer_remedy(callers, n_reads, steps.n_steps, lines, own)
    return {**cause, **counted_by(callers + Counter({"": n_reads}))}


def reads_in_a_step(evidence: Evidence) -> float:
    """Return the arrays that Python reads in a step, as far as the trace shows them."""
    assert evidence.trace is not None
    _, reads = _transfers(evidence.trace)
    items = _items(evidence)
    n_reads = int((evidence.launched.of(reads.start) >= 0).sum())
    return n_reads / evidence.launched.n_steps + (0 if isinstance(items, Unknown) else items)


def _items(evidence: Evidence) -> int | Unknown:
    """Return the calls of `x.item()` in a step that leave no event, or why they are unknown."""
    calls = evidence.recording.python_calls
    if isinstance(calls, Unknown):
        return Unknown(_UNCOUNTED + (f": {calls.why}" if calls.why else ""))
    n_calls = dict.fromkeys((_ITEM, _OF_SEVERAL), 0.0)
    for one in calls.functions:
        file, _, function = one.name.rpartition(":")
        name = f"{file}:{function.rpartition('.')[2]}"
        if name in n_calls:
            n_calls[name] += one.calls
    items = n_calls[_ITEM]
    if items and (n_calls[_OF_SEVERAL] or not items.is_integer()):
        return Unknown(_MIXED if items.is_integer() else _UNEQUAL)
    return int(items)


def _transfers(trace: Trace) -> tuple[Events, Events]:
    """Return the events of arrays that Python passes to devices, and of those that it reads."""
    host = Events.of(trace.plane(HOST))
    return _puts(host), host.called(*_READS)


def _puts(host: Events) -> Events:
    """Return the events of arrays on their way from Python to devices."""
    puts = host.called(*_PUTS)
    moved = enclosing(puts, host.called(*_BETWEEN_DEVICES))
    return puts.where(~np.isin(np.arange(len(puts)), moved))


def _callers(host: Events, puts: Events, own: Collection[str]) -> Counter[str]:
    """Count the puts by the function whose argument the array is, "" for all others."""
    explicit = {EXPLICIT_PUT}.intersection(own)
    calls = jax_calls(host).named(lambda name: called_function(name) not in explicit)
    caller = enclosing(calls, puts)
    names = [*(called_function(name) for name in calls.names), ""]
    return Counter(names[place] for place in caller.tolist())
