"""Leave out the values that do not hold, whichever analysis they are from and when it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_tfperf.analysis.absent_ops import why_absent, without_absent, without_traced
from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.host.other_threads import without_elsewhere
from pytest_tfperf.analysis.host.remote_functions import without_remote
from pytest_tfperf.analysis.trace_errors import faults, without_incomplete, without_periods
from pytest_tfperf.values import Source, Value

_MEASURED_IN = {"warm-up": Source.TIMED, "timed": Source.TIMED, "traced": Source.TRACE}
"""Origin of the values that a window touches."""
_OF_INPUT = ("input_bound", "input_wait")
"""Values that a wait for the lock touches: input buffers fill meanwhile."""


def valid(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """
    Return the values, unknown where the evidence as a whole says that they do not hold.

    Those of a window that was shorter than planned have a note.
    """
    incomplete = faults(evidence.trace) if evidence.trace else ()
    untimed = evidence.steps.why_untimed if evidence.trace else ""
    values = without_periods(without_traced(values, evidence.framework), untimed)
    values = without_absent(without_incomplete(values, incomplete), why_absent(evidence))
    values = without_elsewhere(without_remote(values, evidence), evidence)
    return {
        name: value.noted(_window_notes(name, value, evidence)) for name, value in values.items()
    }


def _window_notes(name: str, value: Value, evidence: Evidence) -> Iterator[str]:
    if name != "first_step_time":  # it is of no window
        for window, note in evidence.recording.window_notes.items():
            of_input = window == "lock" and name in _OF_INPUT
            if of_input or value.source is _MEASURED_IN.get(window):
                yield note
