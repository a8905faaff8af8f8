"""
The ops of unoptimised HLO, as TensorFlow calls them, for rules about ops.

Functions are inlined before. Operands are read through broadcasts, which TensorFlow does not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.walk import bodies, is_convolution, is_kernel_gradient
from pytest_tfperf.recorded_graphs import Edge, Ints, OpGraph, OpNode, Tensor

_TYPES = {
    "abs": "Abs",
    "add": "AddV2",
    "compare": "Equal",
    "concatenate": "ConcatV2",
    "constant": "Const",
    "convert": "Cast",
    "convolution": "Einsum",
    "copy": "Identity",
    "divide": "RealDiv",
    "dot": "Einsum",
    "dynamic-slice": "Slice",
    "exponential": "Exp",
    "log": "Log",
    "log-plus-one": "Log1p",
    "logistic": "Sigmoid",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "multiply": "Mul",
    "negate": "Neg",
    "opt-barrier": "Identity",
    "pad": "PadV2",
    "parameter": "Placeholder",
    "power": "Pow",
    "reshape": "Reshape",
    "rsqrt": "Rsqrt",
    "select": "SelectV2",
    "select-and-scatter": "MaxPoolGrad",
    "slice": "Slice",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tanh": "Tanh",
    "transpose": "Transpose",
}
_REDUCTIONS = {
    "add": "Sum",
    "and": "All",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Prod",
    "or": "Any",
}
_POOLS = {"add": "AvgPool", "maximum": "MaxPool"}


@dataclass(slots=True)
class _Made:
    """The ops made so far, and the places of a computation's instructions in them."""

    ops: list[OpNode] = field(default_factory=list)
    places: dict[int, Edge] = field(default_factory=dict)

    def add(self, op: OpNode) -> Edge:
        self.ops.append(op)
        return len(self.ops) - 1, 0

    def constant(self, value: Ints) -> Edge:
        shape = (len(value),) if isinstance(value, tuple) else ()
        outputs = (Tensor(shape=shape, dtype="s64"),)
        return self.add(OpNode(name="", op_type="Const", outputs=outputs, value=value))


def ops_of_hlo(modules: Iterable[HloModule]) -> OpGraph:
    """
    Return the ops of modules as one graph.

    Args:
        modules: The modules before optimisation, functions inlined.
    """
    made = _Made()
    results: list[Edge] = []
    for module in modules:
        for part in bodies(module):
            made.places = {}
            for op in part.instructions.values():
                made.places[op.id] = _place(made, op, part, module)
            if part.id == module.entry_id:
                root = part.root
                keys = root.operands if root.opcode == "tuple" else (root.id,)
                results += [made.places[key] for key in keys]
    return OpGraph(ops=tuple(made.ops), results=tuple(results))


def _place(made: _Made, op: HloInstruction, part: HloComputation, module: HloModule) -> Edge:
    """Return the place of an instruction's result; a broadcast's is that of its operand."""
    inputs = [made.places[key] for key in op.operands]
    if op.opcode == "broadcast":
        return inputs[0]
    op_type = _op_type(op, part, module.computations)
    node = OpNode(
        name=op.op_name or op.name,
        op_type=op_type,
        inputs=tuple(inputs),
        outputs=(Tensor(shape=_dimensions(op, part), dtype=op.shape.dtype),),
        line=source_line(op),
        in_loop=part.id != module.entry_id,
        value=op.constant if type(op.constant) is int else None,
    )
    if op.opcode == "transpose" or op_type in _REDUCTIONS.values():
        node = replace(node, inputs=(inputs[0], made.constant(op.dimensions)))
    elif op.opcode == "concatenate":
        node = replace(node, inputs=(*inputs, made.constant(op.dimensions[0])))
    elif is_convolution(op) and op.convolution and op.convolution.input_feature == 1:
        node = replace(node, attrs={"data_format": "NCHW"})
    return made.add(node)


def _op_type(
    op: HloInstruction, part: HloComputation, computations: Mapping[int, HloComputation]
) -> str:
    """Return the type of an instruction in TensorFlow, or its opcode."""
    if op.opcode in ("reduce", "reduce-window") and op.called:
        known = _REDUCTIONS if op.opcode == "reduce" else _POOLS
        return known.get(computations[op.called[0]].root.opcode, op.opcode)
    if is_convolution(op):
        kind = "Conv3D" if op.convolution and len(op.convolution.input_spatial) == 3 else "Conv2D"
        return f"{kind}BackpropFilter" if is_kernel_gradient(op) else kind
    if op.opcode == "maximum" and _has_zero(part.operands(op), part):
        return "Relu"
    return _TYPES.get(op.opcode, op.opcode)


def _has_zero(operands: Sequence[HloInstruction], part: HloComputation) -> bool:
    """Return whether one of some operands is zero everywhere."""
    sources = (
        part.instructions[op.operands[0]] if op.opcode == "broadcast" else op for op in operands
    )
    return any(op.opcode == "constant" and op.constant == 0 for op in sources)


def _dimensions(op: HloInstruction, part: HloComputation) -> tuple[int, ...]:
    """Return the sizes of a result; a slice at one position drops that dimension, as `x[:, 0]`."""
    sizes = op.shape.dimensions
    if op.opcode not in ("slice", "dynamic-slice"):
        return sizes
    whole = part.operands(op)[0].shape.dimensions
    return tuple(new for old, new in zip(whole, sizes, strict=True) if new != 1 or old == 1)
