"""Name what the programs of a step are made of that makes them slow to trace and compile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from pytest_tfperf.advice.by_framework import UNROLLED
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.walk import with_calls_inlined
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.op_types import computes
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.recorded_graphs import OpGraph, OpNode
from pytest_tfperf.values import Unknown, Value

_AS_ARGUMENT = (
    "pass it as an argument: a constant is a part of the program, which is copied and compiled "
    "with it (TensorFlow: or hold it in a tf.Variable that is made outside of the function)"
)
_CALLED = re.compile(r"(StatefulPartitionedCall/)?(gradient_tape/)?")
_SCOPE = re.compile(r"(?:(?:[^/]*model|functional|sequential)[^/]*/)*([^/:]+)/")
_MANY = 100
"""Ops of one kind, line and layer from which a loop of Python is likely to have made them."""
_MOST = 0.3
"""Least share of such ops among those that compute, from which the loop is what is slow."""
_ASSIGNS = re.compile(r"^(Assign\w*|ResourceApply\w*)$")
_VARIABLES = 8
"""Variables that one scope assigns from which it is an optimizer's."""
_LARGE_BYTES, _LARGE_ELEMENTS = 4 << 20, 1024
_DEAR = ("dot", "convolution", "sort", "scatter", "gather", "reduce-window", "reduce")
_LAID_OUT = frozenset(
    {
        *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "broadcast", "iota"),
        *("reshape", "transpose", "convert", "copy", "slice", "concatenate", "call"),
    }
)
"""Ops that compute nothing."""


class Made(NamedTuple):
    """What stands out in the programs of a step."""

    where: str = ""
    """As in `, 1000 dot at model.py:12`; empty if nothing stands out."""
    remedy: str = ""
    """What to do about it."""


def made_of(evidence: Evidence) -> Made:
    """Return what stands out in the step's programs: large constants, or an op that repeats."""
    return _of_programs(evidence) if evidence.framework == JAX else _of_graph(evidence)


def line_of_fit(lines: Iterable[str | None]) -> str | None:
    """Return the line that made most ops of a Keras loop: that of `fit`, which tells no layer."""
    counts = Counter(line for line in lines if line)
    return max(counts, key=lambda line: counts[line], default=None)


def scope_of(name: str) -> str:
    """Return the layer or optimizer in an op's name, empty without one."""
    match = _SCOPE.match(_CALLED.sub("", name, count=1))
    return match[1] if match else ""


def _of_graph(evidence: Evidence) -> Made:
    graph = evidence.code.ops
    if isinstance(graph, Unknown):
        return Made()
    readers = {edge[0]: op.line for op in graph.ops for edge in op.inputs if edge and op.line}
    constants = [
        (_bytes(op), _text(op), op.line or readers.get(place))
        for place, op in enumerate(graph.ops)
        if op.op_type == "Const"
    ]
    return _constants(constants) or _repeated_in(graph)


def with_loops(values: dict[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Say of graph_ops which op a loop of Python put into the graph again and again."""
    graph, number = evidence.code.graph, values["graph_ops"]
    if isinstance(graph, Unknown) or max(graph.after.values(), default=0) < _MANY:
        return values
    ops = evidence.code.ops
    made = Made() if isinstance(ops, Unknown) else _repeated_in(ops)
    if number.number is None or not made.where:
        return values
    detail = {"where": f"{number.detail['where']}{made.where}", "try": made.remedy}
    return values | {"graph_ops": replace(number, detail={**number.detail, **detail})}


def _repeated_in(graph: OpGraph) -> Made:
    """Name the op that is most often in a graph, if that is very often."""
    made = [(op.op_type, scope_of(op.name), op.line) for op in graph.ops if computes(op.op_type)]
    # an optimizer, too, makes its ops once for each variable, and assigns it
    assigned = Counter(scope_of(op.name) for op in graph.ops if _ASSIGNS.search(op.op_type))
    optimizers = {scope for scope, number in assigned.items() if number >= _VARIABLES}
    own = ((kind, "", None) if of in optimizers else (kind, of, at) for kind, of, at in made)
    return _repeated(own, TENSORFLOW)


def _of_programs(evidence: Evidence) -> Made:
    programs = evidence.lowered if evidence.trace is not None else Unknown("")
    if isinstance(programs, Unknown):
        return Made()
    parts = [
        part for module, _ in programs for part in with_calls_inlined(module).computations.values()
    ]
    ops = [op for part in parts for op in part.instructions.values()]
    constants = [
        (op.shape.bytes, _shape(op), source_line(op) or _reader(op, part))
        for part in parts
        for op in part.instructions.values()
        if op.opcode == "constant"
    ]
    made = ((op.opcode, "", source_line(op)) for op in ops if op.opcode not in _LAID_OUT)
    folded = next(filter(None, map(_folded, parts)), None)
    return _constants(constants) or folded or _repeated(made, JAX)


def fused_in(fusion: HloInstruction, module: HloModule) -> tuple[str, ...]:
    """Return the kinds of op that compute in a fusion, the dearest first; none of another op."""
    if fusion.opcode != "fusion":
        return ()
    parts = (module.computations[key] for key in fusion.called)
    kinds = {op.opcode for part in parts for op in part.instructions.values()} - _LAID_OUT
    rank = {kind: place for place, kind in enumerate(_DEAR)}
    return tuple(sorted(kinds, key=lambda kind: (rank.get(kind, len(rank)), kind)))


def _constants(found: Iterable[tuple[int, str, str | None]]) -> Made | None:
    """Name the largest of constants that are large together: (bytes, type, line)."""
    found = sorted(found, key=lambda one: -one[0])
    total = sum(size for size, *_ in found)
    if total < _LARGE_BYTES:
        return None
    _, text, line = found[0]
    at = f" at {line}" if line else ""
    size = format_quantity(total, BYTES)
    return Made(f", {size} of constants in it, the largest {text}{at}", _AS_ARGUMENT)


def _reader(constant: HloInstruction, part: HloComputation) -> str | None:
    """Return the user's line of the first op that reads a large constant."""
    if constant.shape.bytes < _LARGE_BYTES:
        return None
    readers = (op for op in part.instructions.values() if constant.id in op.operands)
    return next(filter(None, map(source_line, readers)), None)


def _folded(part: HloComputation) -> Made | None:
    """Name an op of constants alone, which XLA computes while it compiles."""
    fixed: dict[int, HloInstruction | None] = {}
    for key, op in part.instructions.items():
        if op.opcode == "constant":
            fixed[key] = op if op.shape.elements >= _LARGE_ELEMENTS else None
        elif op.operands and all(one in fixed for one in op.operands) and op.opcode != "while":
            large = next(filter(None, (fixed[one] for one in op.operands)), None)
            if large is not None and op.opcode not in _LAID_OUT:
                line = source_line(op)
                at = f" at {line}" if line else ""
                where = f", which computes the {op.opcode} of a constant {_shape(large)}{at}"
                return Made(f"{where} as it compiles", _AS_ARGUMENT)
            fixed[key] = large
    return None


def _repeated(made: Iterable[tuple[str, str, str | None]], framework: str) -> Made:
    """Name the op that is made most often by one line or layer: (kind, layer, line)."""
    counts = Counter(made)
    often = {one: n for one, n in counts.items() if n >= _MANY and any(one[1:])}
    if sum(often.values()) < _MOST * counts.total() or not often:
        return Made()
    kind, layer, line = max(often, key=lambda one: often[one])
    place = f" at {line}" if line else ""
    of = f" of {layer}" if layer else ""
    return Made(f", {often[kind, layer, line]} {kind}{of}{place}", UNROLLED[framework])


def _bytes(op: OpNode) -> int:
    """Return the bytes of a constant, 0 if its shape or type does not tell."""
    (tensor,) = op.outputs
    if tensor.shape is None or None in tensor.shape:
        return 0
    try:
        return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize  # type: ignore[arg-type]
    except TypeError:  # text, and types of 8 bits that NumPy has not
        return 0


def _text(op: OpNode) -> str:
    (tensor,) = op.outputs
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape or ()))}]"


def _shape(op: HloInstruction) -> str:
    return f"{op.shape.dtype}[{','.join(map(str, op.shape.dimensions))}]"
