"""Name what traced or compiled functions, and ran outside of XLA, with the remedy of each cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_tfperf import op_types
from pytest_tfperf.advice.by_framework import ONE_LENGTH, text_for
from pytest_tfperf.advice.step_remedies import MADE_ANEW
from pytest_tfperf.facts.executions import short_module
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
)
from pytest_tfperf.text import and_more

_SHOWN, _CHANGES = 5, 3
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
_INTO_XLA = {
    op_types.TEXT: "turn text into numbers before the step, in the input pipeline",
    op_types.PYTHON: (
        "write it with TensorFlow's ops, or call it outside the function that is compiled"
    ),
    op_types.NO_KERNEL: (
        "replace it by ops that XLA compiles, or keep it outside the function that is compiled"
    ),
    op_types.DYNAMIC: (
        "jit_compile=True on its tf.function takes it; or keep the size constant: tf.where(mask, "
        "x, 0)"
    ),
    op_types.RANDOM: "tf.random.stateless_uniform and its siblings can be clustered",
    op_types.EAGER: "move it into a tf.function",
    op_types.LEFT_OUT: "jit_compile=True on its tf.function compiles it whole",
    op_types.UNASKED: (
        "jit_compile=True on its tf.function or in model.compile, or autocluster=True on the marker"
    ),
}
_TO_ONE_SIZE = {
    "Where": "keep the size: multiply by the mask, or tf.where(mask, x, 0), in place of "
    "tf.boolean_mask or tf.where(mask)",
}


def retrace_cause(
    traced: Sequence[FunctionTrace], framework: str = TENSORFLOW, own: Collection[str] = ()
) -> dict[str, str]:
    """
    Return `where` and, if the change is known, `try` for functions traced after the first step.

    Args:
        traced: The traces.
        framework: The framework that ran the steps.
        own: Functions that JAX itself compiles.
    """
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
    Return `where` and, if the change is known, `try` for executables compiled after the first step.

    Args:
        traced: Traces after which one was compiled.
        others: Changes of all others.
        framework: The framework that ran the steps.
        origin: Type and line of the op whose results have changing sizes, if it is the cause.
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
    """
    Return the traces that explain compilations, by the names of the functions, and the other ones.

    Args:
        compiled: The executables that were compiled.
        traced: The traces of the same steps.
        own: Functions that JAX itself compiles.
    """
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


def outside_cause(outside: Sequence[tuple[str, str | None, str, int]]) -> dict[str, str]:
    """
    Return `where` and `try` for ops outside XLA: (type, place, reason, number).

    Ops that XLA cannot compile come first.
    """
    shown = [
        op_type + (f" ×{count}" if count > 1 else "") + f" ({why})" + (f" {place}" if place else "")
        for op_type, place, why, count in outside[:_SHOWN]
    ]
    left = sum(count for *_, count in outside[_SHOWN:])
    return {
        "where": f"outside XLA: {and_more(shown, _SHOWN, '; ', left)}",
        "try": _INTO_XLA[outside[0][2]],
    }
