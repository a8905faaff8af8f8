"""Count XLA executables that ran and compiled; name what traced, compiled or ran outside of XLA."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import ONE_LENGTH, ONE_PROGRAM, text_for
from pytest_tfperf.advice.step_remedies import MADE_ANEW
from pytest_tfperf.facts.executions import compiled_outside, full_names, program_id, short_module
from pytest_tfperf.facts.host_activity import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.function_traces import (
    CONTEXT,
    DTYPE,
    FIRST,
    FORGOTTEN,
    FUNCTION_ARGUMENT,
    GONE,
    KERAS_COMPILE,
    KERAS_MODEL,
    LENGTH,
    NEW_FUNCTION,
    NEW_PIPELINE,
    OBJECT,
    SHAPE,
    SHARDING,
    STATIC,
    STRUCTURE,
    UNKNOWN,
    VALUE,
    WEAK_TYPE,
    Change,
    FunctionTrace,
    axes_of,
)
from pytest_tfperf.graphs import Tensor
from pytest_tfperf.hlo.layout import shape_text
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.op_types import is_input
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.quantities import digits
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.hlo_modules import argument_shapes, live_modules
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import COUNTED_BY, Source, Value

_FUNCTION = re.compile(r"a_inference_.+_\d+__")
_COMPARED, _NAMED = 100, 3  # executables, and arguments of each that are named
_NOT_WATCHED = "only steps that tf_profile drives are watched from the first to the last"
_SHOWN = 5
_MOST_NAMES = 50
_CHANGES = 3
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")
_UNKNOWN = (Change(UNKNOWN, "what changed is not known"),)
_DATASET = "Dataset_"  # tensorflow/python/data/ops/structured_function.py, `func_name`
_NEW_PIPELINE = Change(NEW_PIPELINE, "a pipeline of tf.data was made anew")
_OUTSIDE_JIT = "op outside jax.jit"
_OF_JAX = (Change(_OUTSIDE_JIT, "an op outside jax.jit, with such arguments for the first time"),)
_AXIS_0 = re.compile(r"(axis|axes) 0\b")
_REMEDIES: Mapping[str, str] = {
    DTYPE: "cast {of} to one dtype before the call",
    WEAK_TYPE: (
        "give {of} a dtype from the start, as jnp.asarray(value, 'float32') does: a Python "
        "number is weakly typed, and so is jnp.asarray of one"
    ),
    SHARDING: "jax.device_put {of} with one sharding before the first step",
    VALUE: ("pass {of} as a tensor (tf.constant): its value is then no part of the signature"),
    STATIC: (
        "pass {of} as an array and not as a static one; jax.lax.cond and jax.lax.fori_loop "
        "branch and loop on it"
    ),
    OBJECT: (
        "give the class of {of} __eq__ and __hash__ (a frozen dataclass has both), or pass one "
        "object in all steps"
    ),
    GONE: "keep the object that is {of}, and pass it in all steps",
    FUNCTION_ARGUMENT: "define the function that is {of} once, outside of the step",
    STRUCTURE: (
        "give {of} one structure in all steps: the same keys and types, and None or a value in "
        "always the same places"
    ),
    NEW_FUNCTION: "make the {of} once, outside of the step",
    NEW_PIPELINE: MADE_ANEW,
    KERAS_COMPILE: ("call model.compile once, before the steps: it throws the traced step away"),
    KERAS_MODEL: "make and compile the model once, before the steps",
    CONTEXT: "set {of} before the first step, and leave it so",
    FORGOTTEN: "leave jax.clear_caches() out of the steps",
    FIRST: "call what is first called in a later step once before the steps",
    _OUTSIDE_JIT: "move the op into a jax.jit function",
}
"""Remedies by the kind of change; `of` is what changed."""
_TO_ONE_SIZE = {
    "Where": "keep the size: multiply by the mask, or tf.where(mask, x, 0), in place of "
    "tf.boolean_mask or tf.where(mask)",
}


def recompilations(trace: Trace, compiled: Sequence[str]) -> dict[str, Change]:
    """
    Compare executables compiled after the first step, by name or module, with older ones; return
    what changed, by their names, of those that are not gone again.
    """
    alive = live_modules(trace)
    found = full_names([name for name in compiled if name not in alive], alive)
    names = sorted({name for name in (*compiled, *found) if name in alive}, key=program_id)
    before = {name: _before(name, names, alive) for name in names[:_COMPARED]}
    shapes = argument_shapes(trace, {*before, *filter(None, before.values())})
    return {name: _describe(name, older, shapes) for name, older in before.items()}


def _before(name: str, compiled: Sequence[str], alive: frozenset[str]) -> str | None:
    """Return the latest older executable of the same traced function, else of the same name."""
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
        if shape_text(one) != shape_text(other)
    ]
    if not changed:
        same = "with arguments of the same shapes; what else changed is not known"
        is_anew = _function(name) != _function(before)
        return Change(UNKNOWN, f"{title}: {'traced anew' if is_anew else same}")
    texts = [
        f"argument {place} {shape_text(one)} → {shape_text(other)}" for place, one, other in changed
    ]
    place, one, other = changed[0]
    kind = SHAPE if one.dtype == other.dtype != "tuple" else DTYPE
    of = f"argument {place}"
    if kind == SHAPE:
        of = axes_of(of, tuple(one.dimensions), tuple(other.dimensions))
    return Change(kind, f"{title}: {and_more(texts, _NAMED)}", of)


def analyse(evidence: Evidence) -> Findings:
    """Find what XLA ran in the steps, and what it compiled after the first of them."""
    values = {"xla_compiles": compiles(evidence)}
    if evidence.trace is None:
        untraced = evidence.untraced("xla_clusters", "xla_launches").values
        return Findings(values={**untraced, **values})
    return Findings(values=values | _run_values(evidence))


def compiles(evidence: Evidence) -> Value:
    """Return xla_compiles after the first step, with what was different in the trace."""
    compiled, trace, over = evidence.late.compiled, evidence.trace, counted_over(evidence)
    hidden = evidence.why_compilations_hidden if trace else None
    if hidden and not compiled and over["n_steps"]:
        return Value.unknown("xla_compiles", hidden)
    if compiled is None or not over["n_steps"]:
        return Value.unknown("xla_compiles", why_uncounted(evidence, "the host"))
    number = len(compiled)
    if trace is not None and compiled and not evidence.recording.bare:
        elsewhere = compiled_outside(trace, evidence.launched)
        number = max(number - len(elsewhere), 0)
        compiled = _without(compiled, elsewhere)
    cause, counted = _compile_cause(compiled, evidence), counted_by(map(short_module, compiled))
    return Value.of("xla_compiles", number, Source.TRACE, **over, **cause, **counted)


def _without(compiled: Sequence[str], elsewhere: Iterable[str]) -> tuple[str, ...]:
    """Return executables without those of some modules, each once and as far as they are known."""
    left = Counter(map(short_module, elsewhere))
    kept = []
    for name in compiled:
        if left[short_module(name)]:
            left[short_module(name)] -= 1
        else:
            kept.append(name)
    return tuple(kept)


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
    """Return why nothing was counted after the first step, of which `source` would have events."""
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
    shown = [name if n == 1 else f"{name} ×{digits(n)}" for name, n in most]
    cause = {"where": f"ran in a step: {and_more(shown, _SHOWN)}"}
    return cause | ({"try": text_for(ONE_PROGRAM, framework)} if len(most) > 1 else {})


def _compile_cause(compiled: Sequence[str], evidence: Evidence) -> dict[str, str]:
    if not compiled:
        return {}
    recording = evidence.recording
    own = recording.own_functions or ()
    traced, left = explained_by_traces(compiled, evidence.late.traced or (), own)
    known = recompilations(evidence.trace, left) if evidence.trace is not None and left else {}
    others = Counter(map(short_module, left)) - Counter(map(short_module, known))
    changes = [*known.values(), *(Change(UNKNOWN, name) for name in others.elements())]
    is_shape = any(change.kind == SHAPE for change in changes)
    origin = _origin(evidence) if is_shape and recording.framework == TENSORFLOW else None
    return compile_cause(traced, changes, recording.framework, origin)


def _origin(evidence: Evidence) -> tuple[str, str | None] | None:
    """Return type and line of the first op with a result of unknown size, if no input has one."""
    ops = evidence.code.ops  # operands before their users
    first = next((op for op in ops if not all(map(_is_known, op.outputs))), None)
    if first is None or first.op_type == "Placeholder" or is_input(first.op_type):
        return None  # else the data have other shapes
    return first.op_type, first.line


def _is_known(tensor: Tensor) -> bool:
    return tensor.shape is not None and None not in tensor.shape


def per_step(metric: str, counts: Ints, sizes: Ints | None, **detail: Any) -> Value:
    """Return the median over the steps, with the extremes; `sizes` are the steps inside each."""
    each = counts / (np.ones(1) if sizes is None else np.maximum(sizes, 1))
    if each.min() != each.max():
        detail |= {"low": float(each.min()), "high": float(each.max())}
    return Value.of(metric, float(np.median(each)), Source.TRACE, n_steps=len(each), **detail)


def retrace_cause(
    traced: Sequence[FunctionTrace], framework: str = TENSORFLOW, own: Collection[str] = ()
) -> dict[str, str]:
    """Return `where` and, if the change is known, `try` for functions traced again."""
    traced = [_of_pipeline(_of_jax(one, own)) for one in traced]
    steps = and_more([str(step) for step in sorted({one.step for one in traced})], _SHOWN)
    is_again = all(change.kind != FIRST for one in traced for change in one.changes)
    where = f"traced{' again' if is_again else ''}: {_described(traced)}, in step {steps}"
    return {"where": where} | _remedy((one.changes for one in traced), framework)


def compile_cause(
    traced: Sequence[FunctionTrace],
    others: Sequence[Change],
    framework: str = TENSORFLOW,
    origin: tuple[str, str | None] | None = None,
) -> dict[str, str]:
    """
    Return `where`, and `try` of a known change, for compilations with traces and `others` without;
    `origin` is the type and line of the op whose results change size, if it is the cause.
    """
    texts = Counter(change.text for change in others)
    shown = [text if count == 1 else f"{text} ×{count}" for text, count in texts.most_common()]
    left = sum(count for _, count in texts.most_common()[_CHANGES:])
    described = [_described(traced)] if traced else []
    if shown:
        n_more = left - max(len(shown) - _CHANGES, 0)
        described.append(and_more(shown, _CHANGES, "; ", n_more))
    where = f"compiled: {'; '.join(described)}"
    changes = [one.changes for one in traced]
    if origin is None:
        changes += [(change,) for change in others]
        return {"where": where} | _remedy(changes, framework, is_compiled=True)
    op_type, line = origin
    where += f"; the size is that of a result of {op_type}" + (f" at {line}" if line else "")
    remedy = _TO_ONE_SIZE.get(op_type, f"pad the result of {op_type} to one size")
    more = _remedy(changes, framework, is_compiled=True)
    return {
        "where": f"{where}, and the step's inputs have one shape",
        "try": "; ".join([remedy, *more.values()]),
    }


def explained_by_traces(
    compiled: Sequence[str], traced: Sequence[FunctionTrace], own: Collection[str] = ()
) -> tuple[list[FunctionTrace], list[str]]:
    """Return the traces that explain compilations, by function, and the other compilations."""
    waiting: dict[str, list[FunctionTrace]] = {}
    for one in traced:
        waiting.setdefault(_NO_LETTER.sub("", one.function), []).append(_of_jax(one, own))
    found, left = [], []
    for name in compiled:
        traces = waiting.get(_NO_LETTER.sub("", short_module(name).removeprefix("jit_")))
        trace = traces.pop(0) if traces else None
        if trace is None or all(map(_tells_less_than_hlo, trace.changes)):
            left.append(name)
        else:
            found.append(trace)
    return found, left


def _tells_less_than_hlo(change: Change) -> bool:
    """Return whether a change is not known, or is of a shape that a trace leaves open."""
    return change.kind == UNKNOWN or (change.kind == SHAPE and "?" in change.text)


def _of_jax(trace: FunctionTrace, own: Collection[str]) -> FunctionTrace:
    """Return a trace with what is known of it: JAX explains none of its own functions."""
    known = trace.changes or (_OF_JAX if trace.function in own else _UNKNOWN)
    return trace._replace(changes=known)


def _of_pipeline(trace: FunctionTrace) -> FunctionTrace:
    """Return a trace with the cause of those of tf.data, whose functions have a prefix."""
    if not trace.function.startswith(_DATASET):
        return trace
    changes = (_NEW_PIPELINE if one.kind == NEW_FUNCTION else one for one in trace.changes)
    return trace._replace(changes=tuple(changes))


def _described(traced: Iterable[FunctionTrace]) -> str:
    """Describe traces by function, line and kinds of change, the most frequent first."""
    groups: dict[tuple[object, ...], list[FunctionTrace]] = {}
    for one in traced:
        kinds = tuple(dict.fromkeys(change.kind for change in one.changes))
        name = _DATASET if kinds == (NEW_PIPELINE,) else one.function
        groups.setdefault((name, one.line, kinds), []).append(one)
    texts = []
    for traces in sorted(groups.values(), key=len, reverse=True):
        names = dict.fromkeys(one.function for one in traces)
        title = and_more(list(names), _CHANGES) + (
            f" at {traces[0].line}" if traces[0].line else ""
        )
        changes = Counter(
            and_more(list(dict.fromkeys(change.text for change in one.changes)), _CHANGES)
            for one in traces
        ).most_common()
        shown = [text if n == 1 else f"{text} ×{n}" for text, n in changes[:_CHANGES]]
        n_more = sum(n for _, n in changes[_CHANGES:])
        if len(changes) == 1 and len(traces) > 1:
            texts.append(f"{title} ({changes[0][0]}) ×{len(traces)}")
        else:
            texts.append(f"{title} ({and_more(shown, _CHANGES, n_more=n_more)})")
    return and_more(texts, _SHOWN)


def _remedy(
    changes: Iterable[Sequence[Change]], framework: str, is_compiled: bool = False
) -> dict[str, str]:
    """Return `try` with a remedy for each kind of change, the most frequent kind first."""
    if framework == PYTORCH:
        return {"try": "TORCH_LOGS=recompiles names what changed"}
    counts, of = Counter[str](), dict[str, dict[str, None]]()
    for one in changes:
        counts.update({change.kind for change in one})
        for change in one:
            of.setdefault(change.kind, {})[change.of] = None
    remedies = []
    for kind, _ in counts.most_common():
        what = and_more(list(filter(None, of[kind])), _CHANGES)
        if kind == SHAPE:
            remedies.append(_one_shape(what or "the shapes", framework, is_compiled))
        elif kind == LENGTH:
            remedies.append(text_for(ONE_LENGTH, framework).format(of=what))
        elif kind in _REMEDIES:
            remedies.append(_REMEDIES[kind].format(of=what or "its arguments"))
    return {"try": "; ".join(filter(None, remedies))} if any(remedies) else {}


def _one_shape(axes: str, framework: str, is_compiled: bool) -> str:
    """Return the remedy of changing shapes."""
    is_first = _AXIS_0.search(axes)
    if framework == JAX:
        batch = " (drop the last, smaller batch, or pad it)"
        return f"keep {axes} constant{batch if is_first else ', or pad to a few sizes'}"
    batch = " (batch(..., drop_remainder=True), or pad the last one)"
    kept = f"keep {axes} constant{batch}" if is_first else f"pad {axes} to one size"
    open_ = "reduce_retracing=True, or an input_signature with None there"
    return kept if is_compiled else f"{kept}, or leave the size open: {open_}"
