"""
The analysis of one trace by a worker, which stores the result and returns a few bytes.

A worker holds one trace at a time, however many threads it has.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.fleet.fleet_store import ERRORS, METRICS, STEPS, FleetStore
from pytest_tfperf.fleet.trace_files import TraceFile
from pytest_tfperf.fleet.trace_rows import (
    error_row,
    metric_rows,
    step_rows,
)
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.stores.objects import reason
from pytest_tfperf.trace.xspace import decode_trace

MOST_TRACE_BYTES = 2**31
"""Size from which no trace is read: https://protobuf.dev/programming-guides/proto-limits/."""
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one trace, as a worker reports it."""

    sha256: str = ""
    """Hash of the content; empty if it was not read."""
    is_new: bool = True
    """False if a trace of the same content had been analysed before."""
    why: str = ""
    """The reason if the trace could not be analysed, else empty."""


def analyse_into(trace: TraceFile, store: FleetStore) -> Outcome:
    """
    Analyse a trace, and store its metrics and steps, or its error.

    Raises:
        StoreError: If the store cannot be written.
    """
    with _ONE_AT_A_TIME:
        return _analyse_into(trace, store)


def _analyse_into(trace: TraceFile, store: FleetStore) -> Outcome:
    if trace.size >= MOST_TRACE_BYTES:
        size_gb = trace.size / 1e9
        return _unread(trace, store, f"{size_gb:,.1f} GB, and protobuf allows less than 2 GiB")
    try:
        raw = trace.read()
    except Exception as error:  # file systems have no common class of errors
        return _unread(trace, store, f"cannot be read: {reason(error)}")
    sha256 = hashlib.sha256(raw).hexdigest()
    is_new, why = False, ""
    if not store.has(METRICS, sha256):
        is_new, why = True, _stored(trace, store, raw, sha256)
    store.add_seen(trace, sha256)
    return Outcome(sha256=sha256, is_new=is_new, why=why)


def _stored(trace: TraceFile, store: FleetStore, raw: bytes, sha256: str) -> str:
    """Store the result of a trace, and return the reason if that is an error."""
    try:
        analysed = analyse_trace(decode_trace(raw, trace.name))
        steps = step_rows(trace, sha256, analysed)
        metrics = metric_rows(trace, sha256, analysed)
    except Exception as error:  # a damaged trace costs its own result and no other
        known = isinstance(error, TraceError)
        why = str(error) if known else f"the analysis failed: {type(error).__name__}: {error}"
        why = " ".join(why.removeprefix("trace ").removeprefix(trace.name).strip(": ").split())
        store.add_table(ERRORS, sha256, [error_row(trace, sha256, why)])
        return why
    store.add_table(STEPS, sha256, steps)
    # last, since a trace counts as analysed with its metrics
    store.add_table(METRICS, sha256, metrics)
    return ""


def _unread(trace: TraceFile, store: FleetStore, why: str) -> Outcome:
    store.add_unread(trace, why)
    return Outcome(why=why)
