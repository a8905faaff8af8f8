"""Tell the change that made a function compile again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_tfperf.facts.executions import full_names, program_id, short_module
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
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.hlo_modules import argument_shapes, live_modules
from pytest_tfperf.trace.xspace import Trace

_FUNCTION = re.compile(r"a_inference_.+_\d+__")
_COMPARED, _NAMED = 100, 3  # executables, and arguments of each that are named


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
