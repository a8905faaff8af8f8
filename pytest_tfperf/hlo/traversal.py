"""Traversal of a module's computations, and the roles of its instructions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

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
