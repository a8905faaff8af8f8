"""Count XLA executables that the steps ran and compiled, and tell why they compiled again."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import ONE_PROGRAM, text_for
from pytest_tfperf.facts.executions import compiled_outside, full_names, program_id, short_module
from pytest_tfperf.facts.host_activity import TENSORFLOW
from pytest_tfperf.function_traces import (
    DTYPE,
    FIRST,
    SHAPE,
    STRUCTURE,
    UNKNOWN,
    Change,
    axes_of,
)
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.metrics.compiler_causes import compile_cause, explained_by_traces
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.op_types import is_input
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recorded_graphs import Tensor
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.hlo_modules import argument_shapes, live_modules
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import COUNTED_BY, Source, Unknown, Value

_FUNCTION = re.compile(r"a_inference_.+_\d+__")
_COMPARED, _NAMED = 100, 3  # executables, and arguments of each that are named
_NOT_WATCHED = "only steps that tf_profile drives are watched from the first to the last"
_SHOWN = 5
_MOST_NAMES = 50


def recompilations(trace: Trace, compiled: Sequence[str]) -> list[Change]:
    """
    Compare the executables compiled after the first step with their predecessors.

    Each text is `step: argument 0 f32[8,32] → f32[5,32]`, with arguments as XLA counts them. A
    trace without executables of these names gives no change.

    Args:
        trace: The trace of the steps.
        compiled: Names in the trace's metadata, or module names without the program's number.
    """
    alive = live_modules(trace)
    found = full_names([name for name in compiled if name not in alive], alive)
    names = sorted({name for name in (*compiled, *found) if name in alive}, key=program_id)
    before = {name: _before(name, names, alive) for name in names[:_COMPARED]}
    shapes = argument_shapes(trace, {*before, *filter(None, before.values())})
    return [_describe(name, older, shapes) for name, older in before.items()]


def _before(name: str, compiled: Sequence[str], alive: frozenset[str]) -> str | None:
    """
    Return the latest older executable of the same traced function, else of one with that name.
    """
    older = [
        other for other in alive if program_id(other) < program_id(name) or other not in compiled
    ]
    alike = [
        other for other in older if other != name and short_module(other) == short_module(name)
    ]
    return max(
        alike,
        key=lambda other: (_function(other) == _function(name), program_id(other)),
        default=None,
    )


def _function(name: str) -> str:
    match = _FUNCTION.match(name)
    return match[0] if match else short_module(name)


def _describe(name: str, before: str | None, shapes: dict[str, tuple[Shape, ...]]) -> Change:
    title = short_module(name)
    if before is None:
        return Change(FIRST, f"{title}: for the first time")
    if before not in shapes or name not in shapes:
        return Change(UNKNOWN, title)
    old, new = shapes[before], shapes[name]
    if len(old) != len(new):
        return Change(STRUCTURE, f"{title}: {len(old)} → {len(new)} arguments", "its arguments")
    changed = [
        (place, one, other)
        for place, (one, other) in enumerate(zip(old, new, strict=True))
        if _text(one) != _text(other)
    ]
    if not changed:
        same = "with arguments of the same shapes; what else changed is not known"
        is_anew = _function(name) != _function(before)
        return Change(UNKNOWN, f"{title}: {'traced anew' if is_anew else same}")
    texts = [f"argument {place} {_text(one)} → {_text(other)}" for place, one, other in changed]
    place, one, other = changed[0]
    kind = SHAPE if one.dtype == other.dtype != "tuple" else DTYPE
    of = f"argument {place}"
    if kind == SHAPE:
        of = axes_of(of, tuple(one.dimensions), tuple(other.dimensions))
    return Change(kind, f"{title}: {and_more(texts, _NAMED)}", of)


def _text(shape: Shape) -> str:
    """Format a shape as HLO writes it, without its layout: `f32[8,32]`."""
    if shape.dtype == "tuple":
        return f"({', '.join(map(_text, shape.parts))})"
    return f"{shape.dtype}[{','.join(map(str, shape.dimensions))}]"


def analyse(evidence: Evidence) -> Findings:
    """Find what XLA ran in the steps, and what it compiled after the first of them."""
    values = {"xla_compiles": compiles(evidence)}
    if evidence.trace is None:
        untraced = evidence.untraced("xla_clusters", "xla_launches").values
        return Findings(values={**untraced, **values})
    return Findings(values=values | _run_values(evidence))


def compiles(evidence: Evidence) -> Value:
    """
    Return xla_compiles, over all steps after the first.

    A trace tells what was different where XLA compiled again, and what it compiled between steps.
    """
    compiled, trace, over = evidence.late.compiled, evidence.trace, counted_over(evidence)
    hidden = evidence.why_compilations_hidden if trace else None
    if hidden and not compiled and over["n_steps"]:
        return Value.unknown("xla_compiles", hidden)
    if compiled is None or not over["n_steps"]:
        return Value.unknown("xla_compiles", why_uncounted(evidence, "the host"))
    detail: dict[str, Any] = {**over, **_compile_cause(compiled, evidence)}
    number = len(compiled)
    if trace is not None and compiled and not evidence.recording.bare:
        elsewhere = compiled_outside(trace, evidence.launched)
        if elsewhere:
            number, detail["outside_steps"] = max(number - elsewhere, 0), elsewhere
    counted = counted_by(map(short_module, compiled))
    return Value.of("xla_compiles", number, Source.TRACE, **detail, **counted)


def counted_over(evidence: Evidence) -> dict[str, Any]:
    """Return the steps and ends of epochs that are counted over: all after the first step."""
    late, why = evidence.late, evidence.recording.ended
    ended = {"ended": why} if why else {}
    return {"n_steps": max(late.n_steps - 1, 0), "n_epoch_ends": late.n_epochs, **ended}


def counted_by(names: Iterable[str] | Mapping[str, int]) -> dict[str, Any]:
    """Return how much of a count is each function's or op type's, as a detail."""
    found = Counter[str](names)
    return {COUNTED_BY: dict(found.most_common(_MOST_NAMES))} if found else {}


def why_uncounted(evidence: Evidence, source: str) -> str:
    """
    Return why nothing was counted after the first step; `source` would show it in a bare trace.
    """
    if not evidence.recording.bare:
        return evidence.recording.ended or _NOT_WATCHED
    if evidence.late.n_steps > 1:
        return f"the trace has no event of {source}, which would show it"
    return "there is no step after the first"


def _run_values(evidence: Evidence) -> dict[str, Value]:
    """Return xla_clusters and xla_launches."""
    steps, use, why = evidence.steps, evidence.xla, evidence.why_xla_unknown
    ran = {"executables": sorted(use.modules), **_several(use.modules, evidence.framework)}
    clusters, launches = "xla_clusters", "xla_launches"
    return {
        clusters: Value.unknown(clusters, why)
        if why
        else per_step(clusters, use.clusters, None, **ran),
        launches: Value.unknown(launches, why)
        if why and not use.launches.any()
        else per_step(launches, use.launches, steps.sizes, **ran),
    }


def _several(runs: Mapping[str, float], framework: str) -> dict[str, str]:
    """Return `where` and `try` for steps that run several executables, or one several times."""
    if sum(runs.values()) <= 1:
        return {}
    by_function = defaultdict[str, float](float)
    for name, n in runs.items():
        by_function[short_module(name)] += n
    most = sorted(by_function.items(), key=lambda one: (-one[1], one[0]))
    shown = [name if n == 1 else f"{name} ×{n:.3g}" for name, n in most]
    cause = {"where": f"ran in a step: {and_more(shown, _SHOWN)}"}
    return cause | ({"try": text_for(ONE_PROGRAM, framework)} if len(most) > 1 else {})


def _compile_cause(compiled: Sequence[str], evidence: Evidence) -> dict[str, str]:
    if not compiled:
        return {}
    recording = evidence.recording
    own = recording.own_functions or ()
    traced, left = explained_by_traces(compiled, evidence.late.traced or (), own)
    changes = recompilations(evidence.trace, left) if evidence.trace is not None and left else []
    named = [short_module(name) for name in left[len(changes) :]]
    changes += [Change(UNKNOWN, name) for name in named]
    is_shape = any(change.kind == SHAPE for change in changes)
    origin = _origin(evidence) if is_shape and recording.framework == TENSORFLOW else None
    return compile_cause(traced, changes, recording.framework, origin)


def _origin(evidence: Evidence) -> tuple[str, str | None] | None:
    """
    Return type and line of the step's op whose results have changing sizes, if its inputs do not.

    A function whose arguments have known shapes takes no others. So a size that is not known in it
    is made by the first op that has known operands and an unknown result.
    """
    graph = evidence.code.ops
    if isinstance(graph, Unknown):
        return None
    is_known = [[_is_known(one) for one in op.outputs] for op in graph.ops]
    for op, known in zip(graph.ops, is_known, strict=True):
        if all(known):
            continue
        if op.op_type == "Placeholder" or is_input(op.op_type):
            return None  # the data have other shapes
        operands = (is_known[edge[0]][edge[1]] for edge in op.inputs if edge is not None)
        if all(operands):
            return op.op_type, op.line
    return None


def _is_known(tensor: Tensor) -> bool:
    return tensor.shape is not None and None not in tensor.shape


def per_step(metric: str, counts: Ints, sizes: Ints | None, **detail: Any) -> Value:
    """
    Return the median over the steps, with the smallest and largest if they differ.

    Args:
        metric: Name of the metric.
        counts: Count of each step, shape (n_steps,).
        sizes: Number of steps that loop inside each, or None.
    """
    each = counts / (np.ones(1) if sizes is None else np.maximum(sizes, 1))
    if each.min() != each.max():
        detail |= {"low": float(each.min()), "high": float(each.max())}
    return Value.of(metric, float(np.median(each)), Source.TRACE, n_steps=len(each), **detail)
