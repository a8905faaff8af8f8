"""
Calls from Python in the steps: eager ops, functions traced again, JAX outside jit, and all others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_tfperf.advice.step_remedies import (
    eager_cause,
    eager_remedies,
)
from pytest_tfperf.facts.host_activity import JAX, NO_RUNTIME, shows_eager, shows_runtime
from pytest_tfperf.facts.op_times import FunctionUse, eager_share, function_table, op_table
from pytest_tfperf.metrics.compiler_causes import retrace_cause
from pytest_tfperf.metrics.counts import (
    counted_by,
    counted_over,
    per_step,
    why_uncounted,
)
from pytest_tfperf.metrics.dispatches import jax_dispatches
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.python_causes import by_function
from pytest_tfperf.metrics.validity import why_remote
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import UNSEEN, PythonFunction, Recording
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

_NO_EAGER = "the trace has no events of TensorFlow's eager runtime that name what it ran"
_READS = re.compile(
    r"tensorflow/python/framework/ops\.py:_EagerTensorBase\."
    r"(numpy|__(float|int|bool|index|array|complex)__)$"
)
"""Functions of TensorFlow with which Python reads a tensor."""
_SILENT = (
    "{} did not report what it traced: it was imported in the first step, or its version differs "
    "from those that do; import it at the top of the test's module"
)
METRIC = "python_calls"
MOST_FUNCTIONS = 200
"""Functions that a profile and a baseline keep, those with the most calls."""
_NAMED = 3
_NOT_DRIVEN = "only steps that tf_profile drives, or a Keras loop, are counted"
_TOO_FEW = "the data ended before the steps in which they are counted"


def analyse(evidence: Evidence) -> Findings:
    """Find the ops that Python ran eagerly, and the functions that it called and traced."""
    recording, trace = evidence.recording, evidence.trace
    if trace is None:
        untraced = evidence.untraced("eager_ops").values
        return Findings(values={**untraced, "retraces": retraces(evidence, ())})
    uses = evidence.functions
    tables = {}
    if evidence.host_ops:
        ops = op_table(evidence.host_ops, evidence.launched.n_steps)
        tables["host_ops"] = replace(ops, title="ops on the host")
    if uses:
        tables["functions"] = function_table(uses, evidence.launched)
    traces = retraces(evidence, uses)
    if recording.framework == JAX:
        return Findings(
            values={"eager_ops": jax_dispatches(evidence), "retraces": traces}, tables=tables
        )
    if not (evidence.late.traced or uses or shows_runtime(trace)):
        traces = Value.unknown("retraces", traces.why or NO_RUNTIME)
    values = {"eager_ops": _eager_ops(evidence, trace), "retraces": traces}
    return Findings(values=values, tables=tables)


def retraces(evidence: Evidence, uses: Sequence[FunctionUse]) -> Value:
    """
    Return retraces: the traces of functions after the first step.

    Its `expensive_share` is the share of the functions' time in calls that traced or ran eagerly.
    """
    share = _expensive_share(uses)
    detail = {"expensive_share": share} if share else {}
    recording, late, over = evidence.recording, evidence.late, counted_over(evidence)
    traced = late.traced
    if traced is None or not over["n_steps"]:
        is_silent = traced is None and late.compiled is not None and not recording.bare
        why = _SILENT if is_silent else why_uncounted(evidence, "{}'s runtime")
        unknown = Value.unknown("retraces", why.format(recording.framework))
        return replace(unknown, detail=detail)
    source = Source.TRACE if recording.bare else Source.GRAPH
    own = recording.own_functions or ()
    cause = retrace_cause(traced, recording.framework, own) if traced else {}
    counted = counted_by(name for name, *_ in traced)
    return Value.of("retraces", len(traced), source, **over, **cause, **detail, **counted)


def _eager_ops(evidence: Evidence, trace: Trace) -> Value:
    """Return eager_ops, with the share of the host ops' time that is theirs."""
    share = None if why_remote(evidence) else eager_share(evidence.host_ops)  # of all processes
    detail: dict[str, Any] = {"time_share": share} if share else {}
    if not shows_eager(trace):
        unknown = Value.unknown("eager_ops", _NO_EAGER)
        return replace(unknown, detail=detail)
    counts, types = evidence.eager_ops
    cause = {}
    if types:
        recording = evidence.recording
        n_steps, calls = evidence.launched.n_steps, recording.python_calls
        functions = () if isinstance(calls, Unknown) else calls.functions
        n_reads = sum(one.calls for one in functions if _READS.match(one.name))
        remedy = eager_remedies(types, n_steps, _into_a_function(evidence), n_reads)
        cause = eager_cause(types, recording.eager, recording.callbacks, remedy, n_steps)
    detail |= counted_by(types)
    return per_step("eager_ops", counts, evidence.launched.sizes, **cause, **detail)


def _into_a_function(evidence: Evidence) -> str:
    """Return the remedy of ops that Python runs one by one, by what the step calls besides."""
    if evidence.functions:
        return "move them into the tf.function that the step calls"
    if evidence.launched.in_keras:
        return "compile the model with run_eagerly=False"
    return "wrap the step in a tf.function: it calls none"


def _expensive_share(uses: Sequence[FunctionUse]) -> float | None:
    total = sum(use.self_s for use in uses)
    return sum(use.expensive_s for use in uses) / total if total > 0 else None


def analyse_python_calls(evidence: Evidence) -> Findings:
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
