"""Measure the memory that a step needs at its peak."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.memory import (
    least_peak,
    live_table,
    memory_table,
    over_step_table,
    reports_device_memory,
    step_peaks,
    why_not_followed,
)
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.hlo_modules import buffer_bytes
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Source, Unknown, Value

_TRACKED_BYTES = 1 << 20
"""Below this, what bypasses the allocator outweighs what it knows."""
_UNTRACKED = (
    "not every step allocates 1 MiB that the trace knows of; on a CPU only oneDNN's allocator "
    "reports, and small tensors bypass it"
)
_NO_PLAN = (
    "the trace does not tell XLA's plans of all executables that ran; those from JAX's persistent "
    "compilation cache have other numbers in it"
)
_BOUNDS = "from what the trace and the graph know to the growth of the process"
_PROGRAMS = "from the largest of the step's programs to all of them at once"


def analyse(evidence: Evidence) -> Findings:
    """Find the peak of a step's memory."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("peak_memory")
    why = why_not_followed(trace)
    value = Value.unknown("peak_memory", why) if why else _peak_memory(evidence, trace)
    return Findings(values={"peak_memory": value})


def analyse_allocators(evidence: Evidence) -> Findings:
    """Find what allocators held over the steps, and at their peaks."""
    trace = evidence.trace
    if trace is None or why_not_followed(trace):
        return Findings()
    peaks = evidence.memory_peaks
    if not peaks:
        return Findings()
    tables = {
        "memory": memory_table(peaks),
        "memory_over_step": over_step_table(peaks[0]),
        "memory_at_peak": live_table(peaks[0]),
    }
    return Findings(tables=tables)


def _peak_memory(evidence: Evidence, trace: Trace) -> Value:
    """Return XLA's own plan where XLA alone ran the steps, else what allocators reported."""
    if evidence.xla.modules and not evidence.runs_executor:
        planned = _planned(evidence, trace)
        if planned is not None:
            return planned
    peaks = step_peaks(trace, evidence.steps)
    least = 0 if peaks is None else int(peaks.min())
    if accelerators(trace):
        needed = 0
    else:
        graph = evidence.code.graph
        needed = 0 if isinstance(graph, Unknown) else graph.allocated
    if peaks is None or least < _TRACKED_BYTES or peaks.max() < needed:
        return _bounded(evidence, trace, max(least, needed))
    on_device = reports_device_memory(trace)
    bound = {} if on_device else {"at_least": least_peak(trace, evidence.steps)}
    return Value.of(
        "peak_memory", least, Source.TRACE, largest=int(peaks.max()), on_device=on_device, **bound
    )


def _planned(evidence: Evidence, trace: Trace) -> Value | None:
    """Return the memory of XLA's plans; of a step's several programs it is known within bounds."""
    plans, use = buffer_bytes(trace), evidence.xla
    traced = use.all_in_metadata(plans)
    if plans and traced is None:
        return Value.unknown("peak_memory", _NO_PLAN)
    sizes = {name: size for name, size in plans.items() if size}
    steps = use.steps_in_metadata(sizes)
    # those of a cache have other numbers in the events, which tell no step of theirs
    cached = [name for name in traced or () if name in sizes and name not in steps]
    steps |= dict.fromkeys(cached, np.arange(use.launches.size))
    # a rare step may need more, whether it is among the traced ones or not
    rare = {name for name in evidence.late.compiled or () if name in sizes} - steps.keys()
    ran = [sizes[name] for name in (*steps, *rare)]
    if not ran:
        return None
    largest = max(ran)
    held = np.maximum(use.launches - use.clusters, 0) * largest  # of programs that run again
    for name, indices in steps.items():
        held[indices] += sizes[name]
    most = int(held.max(initial=0))
    if use.launches.max(initial=0) > 1:
        most += sum(sizes[name] for name in rare)
    if most <= largest:
        return Value.of("peak_memory", largest, Source.HLO)
    return Value.of("peak_memory", largest, Source.HLO, low=largest, high=most, bounds=_PROGRAMS)


def _bounded(evidence: Evidence, trace: Trace, known: int) -> Value:
    """Return bounds from the growth of the process, of steps that no accelerator runs."""
    most = evidence.recording.memory_bound
    if isinstance(most, Unknown) or accelerators(trace):
        why = most.why if isinstance(most, Unknown) and most.why else ""
        return Value.unknown("peak_memory", f"{_UNTRACKED}; {why}" if why else _UNTRACKED)
    low = min(known, most)
    return Value.of("peak_memory", most, Source.TIMED, low=low, high=most, bounds=_BOUNDS)
