"""Describe the change that made a function compile again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_tfperf.analysis.xla.executions import full_names, program_id, short_module
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.hlo_modules import argument_shapes, live_modules
from pytest_tfperf.trace.xspace import Trace

_FUNCTION = re.compile(r"a_inference_.+_\d+__")
_NAMED = 3  # executables, and arguments of each


def recompilations(trace: Trace, compiled: Sequence[str]) -> list[str]:
    """
    Compare the first executables compiled after the first step with their predecessors.

    Each text is `step: argument 0 f32[8,32] → f32[5,32]`, with arguments as XLA counts them. A
    trace without executables of these names gives no text.

    Args:
        trace: The trace of the steps.
        compiled: Names in the trace's metadata, or module names without the program's number.
    """
    alive = live_modules(trace)
    found = full_names([name for name in compiled if name not in alive], alive)
    names = sorted({name for name in (*compiled, *found) if name in alive}, key=program_id)
    before = {name: _before(name, names, alive) for name in names[:_NAMED]}
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


def _describe(name: str, before: str | None, shapes: dict[str, tuple[Shape, ...]]) -> str:
    title = short_module(name)
    if before not in shapes or name not in shapes:
        return title
    old, new = shapes[before], shapes[name]
    if len(old) != len(new):
        return f"{title}: {len(old)} → {len(new)} arguments"
    texts = [(_text(one), _text(other)) for one, other in zip(old, new, strict=True)]
    changed = [
        f"argument {place} {one} → {other}"
        for place, (one, other) in enumerate(texts)
        if one != other
    ]
    if not changed:
        return (
            f"{title}: traced anew"
            if _function(name) != _function(before)
            else f"{title}: with arguments of the same shapes"
        )
    return f"{title}: {and_more(changed, _NAMED)}"


def _text(shape: Shape) -> str:
    """Format a shape as HLO writes it, without its layout: `f32[8,32]`."""
    if shape.dtype == "tuple":
        return f"({', '.join(map(_text, shape.parts))})"
    return f"{shape.dtype}[{','.join(map(str, shape.dimensions))}]"
