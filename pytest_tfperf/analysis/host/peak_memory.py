"""Measure the memory that a step needs at its peak."""

from __future__ import annotations

from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.host.memory import (
    least_peak,
    reports_device_memory,
    step_peaks,
    why_not_followed,
)
from pytest_tfperf.analysis.host.memory_peaks import (
    live_table,
    memory_peaks,
    memory_table,
    over_step_table,
)
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.hlo_modules import buffer_bytes
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Source, Table, Unknown, Value

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
_BOUNDS = "from what the trace knows to the growth of the process"


def analyse(evidence: Evidence) -> Findings:
    """Find the peak of a step's memory, and what is allocated then."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("peak_memory")
    if why := why_not_followed(trace):
        return Findings(values={"peak_memory": Value.unknown("peak_memory", why)})
    tables: dict[str, Table] = {}
    if peaks := memory_peaks(trace, evidence.launched):
        tables = {
            "memory": memory_table(peaks),
            "memory_over_step": over_step_table(peaks[0]),
            "memory_at_peak": live_table(peaks[0]),
        }
    return Findings(values={"peak_memory": _peak_memory(evidence, trace)}, tables=tables)


def _peak_memory(evidence: Evidence, trace: Trace) -> Value:
    """Return XLA's own plan where XLA alone ran the steps, else what allocators reported."""
    if evidence.xla.modules and not evidence.runs_executor:
        sizes = buffer_bytes(trace)
        traced = evidence.xla.all_in_metadata(sizes)
        if sizes and traced is None:
            return Value.unknown("peak_memory", _NO_PLAN)
        # a rare step may need more, whether it is among the traced ones or not
        ran = {*(traced or ()), *(evidence.completed.compiled or ())}
        known = [sizes[name] for name in ran if sizes.get(name)]
        if known:
            return Value.of("peak_memory", max(known), Source.HLO)
    peaks = step_peaks(trace, evidence.steps)
    if peaks is None or peaks.min() < _TRACKED_BYTES:
        return _bounded(evidence, trace, 0 if peaks is None else int(peaks.min()))
    on_device = reports_device_memory(trace)
    bound = {} if on_device else {"at_least": least_peak(trace, evidence.steps)}
    smallest, largest = int(peaks.min()), int(peaks.max())
    return Value.of(
        "peak_memory", smallest, Source.TRACE, largest=largest, on_device=on_device, **bound
    )


def _bounded(evidence: Evidence, trace: Trace, known: int) -> Value:
    """Return bounds from the growth of the process, of steps that no accelerator runs."""
    most = evidence.recording.memory_bound
    if isinstance(most, Unknown) or accelerators(trace):
        why = most.why if isinstance(most, Unknown) and most.why else ""
        return Value.unknown("peak_memory", f"{_UNTRACKED}; {why}" if why else _UNTRACKED)
    low = min(known, most)
    return Value.of("peak_memory", most, Source.TIMED, low=low, high=most, bounds=_BOUNDS)
