"""Count the Python functions that a step calls in its own thread."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.python_causes import by_function
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import UNSEEN, PythonFunction, Recording
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

METRIC = "python_calls"
MOST_FUNCTIONS = 200
"""Functions that a profile and a baseline keep, those with the most calls."""
_NAMED = 3
_NOT_DRIVEN = "only steps that tf_profile drives, or a Keras loop, are counted"
_TOO_FEW = "the data ended before the steps in which they are counted"


def analyse(evidence: Evidence) -> Findings:
    """Find the calls of Python functions in a step, and the functions called most."""
    recording = evidence.recording
    value = _value(evidence)
    if recording.max_python_calls_regression is not None:
        allowed = {"max_rise": recording.max_python_calls_regression}
        value = replace(value, detail={**value.detail, **allowed})
    calls = recording.python_calls
    tables = {} if isinstance(calls, Unknown) else {METRIC: _table(calls.functions)}
    return Findings(values={METRIC: value}, tables=tables)


def _why_unseen(recording: Recording) -> str:
    if recording.bare:
        return _NOT_DRIVEN
    return recording.ended or _TOO_FEW


def _value(evidence: Evidence) -> Value:
    """Return the calls a step, which are known only where all counted steps have as many."""
    recording = evidence.recording
    calls = recording.python_calls
    if isinstance(calls, Unknown):
        why = _why_unseen(recording) if calls is UNSEEN else f"not counted: {calls.why}"
        return Value.unknown(METRIC, why)
    each = [n_calls / n_steps for n_calls, n_steps in calls.steps]
    low, high = min(each), max(each)
    if low != high:
        shown = " to ".join(format_quantity(number, COUNT) for number in (low, high))
        return Value.unknown(METRIC, f"it differs from step to step: {shown} in {len(each)} steps")
    functions = [f"{one.name} ×{format_quantity(one.calls, COUNT)}" for one in calls.functions]
    causes = [*by_function(lambda one: one.calls, evidence)] if high else []
    if not causes:
        return Value.of(METRIC, high, Source.COUNTED, n_steps=len(each))
    where = [text for _, text, _ in causes]
    if len(where) > 1:
        where = [
            f"{format_quantity(share, SHARE)} of the calls: {text}" for share, text, _ in causes
        ]
    if any(not (one.place or one.of_trees) for one in calls.functions[:_NAMED]):
        where.append(f"called most: {and_more(functions, _NAMED)}")
    remedies = dict.fromkeys(remedy for *_, remedy in causes)
    cause = {"where": "; ".join(where), "try": "; ".join(remedies)}
    return Value.of(METRIC, high, Source.COUNTED, n_steps=len(each), **cause)


def _table(functions: tuple[PythonFunction, ...]) -> Table:
    return Table.of_each(
        "Python functions that a step calls",
        functions,
        [
            (Column("function", "function"), lambda one: one.name),
            (Column("line", "line"), lambda one: one.line),
            (Column("calls", "calls a step", COUNT), lambda one: one.calls),
            (Column("self_s", "self time while counted", SECONDS), lambda one: one.self_s),
        ],
        limit=MOST_FUNCTIONS,
    )
