"""
Walks over a module's computations: roles, inlining as by XLA's CallInliner, dead code, a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

# Ids and names are numbered anew in every process, source lines move with the code around them,
# and the backend's configuration may hold the results of autotuning. Stored hashes know no groups.
_LEFT_OUT = frozenset(
    {
        "id",
        "name",
        "operands",
        "called",
        "op_type",
        "op_name",
        "source_file",
        "source_line",
        "backend_config",
        "replica_groups",
    }
)
_computed = attrgetter(
    *(field.name for field in fields(HloInstruction) if field.name not in _LEFT_OUT)
)
ELEMENTWISE = frozenset(
    [
        "abs",
        "add",
        "and",
        "atan2",
        "bitcast",
        "bitcast-convert",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "copy",
        "cosine",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "imag",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "opt-barrier",
        "or",
        "popcnt",
        "power",
        "real",
        "reduce-precision",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "sine",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "xor",
    ]
)
"""Opcodes whose result has one element for each element of the operands."""
BODIES = frozenset({"while", "call", "conditional", "async-start"})
"""Opcodes that run the computations they call as a part of their own."""
_MOST = 1_000_000
"""Most instructions of a module with inlined functions, against nests of calls that blow up."""


def hlo_hash(module: HloModule) -> str:
    """
    Return eight hexadecimal digits, equal for modules with equal instructions in equal order.

    Opcodes, shapes, layouts and operands count; of constants only scalars count.
    """
    parts = {key: place for place, key in enumerate(module.computations)}
    digest = hashlib.blake2b(digest_size=4)
    for part in module.computations.values():
        digest.update(_text(part, parts).encode())
    return digest.hexdigest()


def _text(part: HloComputation, parts: Mapping[int, int]) -> str:
    """Write a computation with references by position."""
    places = {key: place for place, key in enumerate(part.instructions)}
    return repr(
        [
            (
                _computed(op),
                [places.get(key) for key in op.operands],
                [parts.get(key) for key in op.called],
            )
            for op in part.instructions.values()
        ]
    )


@dataclass(frozen=True, slots=True)
class ConvolutionData:
    """An array of examples that a convolution reads or writes."""

    id: int
    """Id of the instruction that makes the array."""
    batch: int
    """Number of the dimension of the examples."""
    feature: int
    """Number of the dimension of the features."""


def bodies(module: HloModule, callers: Collection[str] = BODIES) -> list[HloComputation]:
    """
    List the entry and the computations that it reaches through some opcodes, each once.

    By default these are the bodies of loops, branches and functions.
    """

    def called_by(key: int) -> list[int]:
        return [
            called
            for op in module.computations[key].instructions.values()
            if op.opcode in callers
            for called in op.called
        ]

    return [module.computations[key] for key in reached([module.entry_id], called_by)]


def is_convolution(op: HloInstruction) -> bool:
    """Return whether an instruction moves a window; without one it is a matrix multiplication."""
    return (
        op.opcode == "convolution"
        and op.convolution is not None
        and bool(op.convolution.input_spatial)
    )


def is_kernel_gradient(op: HloInstruction) -> bool:
    """
    Return whether a convolution computes the gradient of a kernel.

    The framework's op tells; without one, HLO's features tell, which are then the examples.
    """
    dims = op.convolution
    return dims is not None and (
        "BackpropFilter" in op.op_type or (dims.input_feature == 0 and dims.input_batch != 0)
    )


def convolution_data(op: HloInstruction) -> tuple[ConvolutionData, ...]:
    """Return the arrays of examples that a convolution reads and writes, without its kernel."""
    dims = op.convolution
    assert dims is not None
    lhs, rhs = op.operands[:2]
    if is_kernel_gradient(op):
        return ConvolutionData(lhs, dims.input_feature, dims.input_batch), ConvolutionData(
            rhs, dims.kernel_input_feature, dims.kernel_output_feature
        )
    return ConvolutionData(lhs, dims.input_batch, dims.input_feature), ConvolutionData(
        op.id, dims.output_batch, dims.output_feature
    )


def is_identity(op: HloInstruction, part: HloComputation) -> bool:
    """
    Return whether an instruction moves no element.

    True for a reshape to the same sizes and for a transpose that exchanges no dimensions.
    """
    if op.opcode == "reshape":
        return op.shape.dimensions == part.instructions[op.operands[0]].shape.dimensions
    return op.opcode == "transpose" and op.dimensions == tuple(range(len(op.shape.dimensions)))


def without_dead_code(module: HloModule) -> HloModule:
    """
    Keep only the instructions that a module's result needs, all parameters, and what they call.
    """
    parts = {key: _used(part) for key, part in module.computations.items()}
    live = reached(
        [module.entry_id],
        lambda key: [called for op in parts[key].instructions.values() for called in op.called],
    )
    return replace(module, computations={key: part for key, part in parts.items() if key in live})


def _used(part: HloComputation) -> HloComputation:
    """Keep only the instructions that a computation's result needs, and all parameters."""
    used = reached(
        [part.root_id, *(op.id for op in part.parameters.values())],
        lambda key: part.instructions[key].operands,
    )
    return replace(
        part, instructions={key: op for key, op in part.instructions.items() if key in used}
    )


def with_calls_inlined(module: HloModule) -> HloModule:
    """
    Put the instructions of each called function in place of its call.

    Results that pass through a tuple are read directly. The module is unchanged if it would become
    very large.
    """
    parts: dict[int, HloComputation] = {}
    n_left = _MOST
    for part in module.computations.values():  # callees come before their callers
        callees = [parts[op.called[0]] for op in part.instructions.values() if op.opcode == "call"]
        n_left -= sum(len(callee.instructions) for callee in callees)
        if n_left < 0:
            return module
        parts[part.id] = _inlined(part, parts) if callees else part
    return replace(module, computations=parts)


def _inlined(part: HloComputation, callees: Mapping[int, HloComputation]) -> HloComputation:
    made: dict[int, HloInstruction] = {}
    places: dict[int, int] = {}
    for op in part.instructions.values():
        if op.opcode == "call":
            places[op.id] = _copied(op, callees[op.called[0]], made, places)
        else:
            places[op.id] = _added(op, made, places)
    return replace(part, root_id=places[part.root_id], instructions=made)


def _copied(
    call: HloInstruction,
    callee: HloComputation,
    made: dict[int, HloInstruction],
    callers: Mapping[int, int],
) -> int:
    """Copy the instructions of a function."""
    given = [callers[key] for key in call.operands]
    places: dict[int, int] = {}
    for op in callee.instructions.values():
        if op.opcode == "parameter":
            places[op.id] = given[op.parameter_number]
        else:
            named = replace(op, op_name=op.op_name or call.op_name)
            places[op.id] = _added(named, made, places)
    return places[callee.root_id]


def _added(op: HloInstruction, made: dict[int, HloInstruction], places: Mapping[int, int]) -> int:
    """Add an instruction, unless it reads what a tuple was made of."""
    operands = tuple(places[key] for key in op.operands)
    if op.opcode == "get-tuple-element" and made[operands[0]].opcode == "tuple":
        return made[operands[0]].operands[op.tuple_index]
    key = len(made)
    made[key] = replace(op, id=key, operands=operands)
    return key
