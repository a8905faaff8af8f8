"""
HLO made from a step's op graph, with what padding needs: arrays, products and reductions.

It replaces the HLO of a step that cannot be lowered. Ops that only read and write arrays of one
shape become elementwise ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
)
from pytest_tfperf.op_types import MATMULS, REDUCTIONS
from pytest_tfperf.recorded_graphs import Edge, OpGraph, OpNode, Tensor

_DTYPES = {
    "bool": "pred",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "half": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float": "f32",
    "float64": "f64",
    "double": "f64",
    "complex64": "c64",
    "complex128": "c128",
}
_PARAMETERS = re.compile(r"Placeholder|ReadVariableOp|IteratorGetNext")
_MATMULS = MATMULS | {"SparseMatMul"}
_CONVOLUTION = re.compile(
    r"(Conv2D|Conv3D|DepthwiseConv2dNative)(BackpropInput|BackpropFilter)?(V2)?"
)
_UNREAD = "the graph has {}, whose matrix product cannot be read from its attributes"
_OPEN = "the shape of {} ({}) is unknown in the step's graph"
_OPAQUE = frozenset({"XlaEinsum", "XlaDotV2", "XlaConvV2", "CudnnRNNV3"})
_EINSUM = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")


class NotStatic(Exception):
    """Raised for an array with an unknown size, or an op whose product cannot be read."""


@dataclass(slots=True)
class _Made:
    """The instructions made so far, and the places of op results and of variables in them."""

    ops: dict[int, HloInstruction] = field(default_factory=dict)
    places: dict[Edge, int] = field(default_factory=dict)
    variables: dict[Edge, int] = field(default_factory=dict)

    def add(
        self, opcode: str, op: OpNode, shape: Shape, operands: Sequence[int] = (), **more: object
    ) -> int:
        key = len(self.ops)
        instruction = HloInstruction(
            key,
            f"{opcode}.{key}",
            opcode,
            shape,
            tuple(operands),
            op_type=op.op_type,
            op_name=op.name,
            **more,  # type: ignore[arg-type]
        )
        self.ops[key] = instruction
        return key


def module_of(graph: OpGraph, batch: int | None) -> HloModule:
    """
    Make the module of a step's graph; an unknown leading size is the batch.

    Raises:
        NotStatic: If another size of a relevant array is unknown.
    """
    made = _Made()
    for index, op in enumerate(graph.ops):
        _add(made, graph, index, op, batch)
    results = [made.places[edge] for edge in graph.results if edge in made.places]
    root = made.add(
        "tuple",
        OpNode(name="results", op_type="Identity"),
        Shape("tuple", parts=tuple(made.ops[key].shape for key in results)),
        results,
    )
    return HloModule("graph", 1, {1: HloComputation(1, "graph", root, made.ops)}, False)


def _add(made: _Made, graph: OpGraph, index: int, op: OpNode, batch: int | None) -> None:
    convolution = _CONVOLUTION.fullmatch(op.op_type)
    if op.op_type in _OPAQUE:
        raise NotStatic(_UNREAD.format(op.op_type))
    operands = [made.places[edge] for edge in op.inputs if edge is not None and edge in made.places]
    for number, tensor in enumerate(op.outputs):
        shape = _shape(tensor, batch)
        if shape is None:
            if tensor.dtype in _DTYPES and (
                op.op_type in _MATMULS
                or op.op_type == "Einsum"
                or convolution
                or _PARAMETERS.fullmatch(op.op_type)
            ):
                raise NotStatic(_OPEN.format(op.name, op.op_type))
            continue
        if op.op_type in _MATMULS and len(operands) >= 2:
            key = _dot(made, op, shape, operands)
        elif op.op_type == "Einsum" and len(op.inputs) == 2:
            key = _einsum(made, op, shape, operands)
        elif convolution and len(operands) >= 2:
            key = _convolution(made, op, shape, convolution)
        else:
            key = _other(made, graph, op, shape, operands)
        made.places[index, number] = key


def _shape(tensor: Tensor, batch: int | None) -> Shape | None:
    if tensor.shape is None or tensor.dtype not in _DTYPES:
        return None
    first, *others = tensor.shape or (1,)
    sizes = (batch if first is None else first, *others) if tensor.shape else ()
    known = tuple(size for size in sizes if size is not None)
    return Shape(_DTYPES[tensor.dtype], known) if len(known) == len(sizes) else None


def _other(made: _Made, graph: OpGraph, op: OpNode, shape: Shape, operands: Sequence[int]) -> int:
    if _PARAMETERS.fullmatch(op.op_type):
        variable = op.inputs[0] if op.op_type == "ReadVariableOp" else None
        if variable is None or variable not in made.variables:
            key = made.add(
                "get-tuple-element" if op.in_loop else "parameter",
                op,
                shape,
                parameter_number=len(made.ops),
            )
            return key if variable is None else made.variables.setdefault(variable, key)
        return made.variables[variable]
    if op.op_type == "Const":
        return made.add("constant", op, shape)
    if op.op_type in REDUCTIONS and operands:
        rank = len(made.ops[operands[0]].shape.dimensions)
        axes = _ints(graph, op, 1)
        kept_rank = len(shape.dimensions) == rank
        if axes is not None and not kept_rank:
            return made.add(
                "reduce", op, shape, operands[:1], dimensions=tuple(axis % rank for axis in axes)
            )
        return made.add("reduce" if not kept_rank else "reduce-window", op, shape, operands[:1])
    alike = [key for key in operands if made.ops[key].shape.dimensions == shape.dimensions]
    if op.op_type == "Reshape" and operands:
        return made.add("reshape", op, shape, operands[:1])
    if op.op_type == "Transpose" and operands:
        return made.add("transpose", op, shape, operands[:1], dimensions=_ints(graph, op, 1) or ())
    if "Pool" in op.op_type and operands:
        return made.add("reduce-window", op, shape, operands[:1])
    if alike and op.op_type not in ("Cumsum", "Reverse", "Roll"):
        return made.add("add", op, shape, alike)
    scalars = all(
        not made.ops[key].shape.dimensions or made.ops[key].opcode == "constant" for key in operands
    )
    return made.add(
        "broadcast" if scalars or op.op_type in ("BroadcastTo", "Tile", "Fill") else "other",
        op,
        shape,
        operands,
    )


def _ints(graph: OpGraph, op: OpNode, number: int) -> tuple[int, ...] | None:
    """
    Return the whole numbers of a constant operand, else None.

    Args:
        graph: The graph.
        op: The op.
        number: Number of the operand.
    """
    edge = op.inputs[number] if len(op.inputs) > number else None
    value = graph.ops[edge[0]].value if edge is not None else None
    if isinstance(value, int):
        return (value,)
    return tuple(one for one in value if isinstance(one, int)) if value is not None else None


def _dot(made: _Made, op: OpNode, shape: Shape, operands: Sequence[int]) -> int:
    """
    Make a dot.

    The contracted dimension is the one that the result lacks; for square operands either will do.

    Args:
        made: The instructions so far.
        op: The matrix multiplication.
        shape: Shape of its result.
        operands: Ids of its operands.
    """
    left, right = (made.ops[key].shape.dimensions for key in operands[:2])
    rank = len(shape.dimensions)
    if min(len(left), len(right), rank) < 2:
        raise NotStatic(_UNREAD.format(op.op_type))
    m, n = shape.dimensions[-2:]
    k = prod(left[-2:]) // max(1, m)
    left_k = len(left) - 1 if left[-2:] == (m, k) else len(left) - 2
    right_k = len(right) - 2 if right[-2:] == (k, n) else len(right) - 1
    shared = range(min(len(left), len(right)) - 2)
    dims = DotDimensions((left_k,), (right_k,), tuple(shared), tuple(shared))
    return made.add("dot", op, shape, operands[:2], dot=dims)


def _einsum(made: _Made, op: OpNode, shape: Shape, operands: Sequence[int]) -> int:
    """
    Make a dot of an einsum; shared letters are batches if the result has them, else contracted.

    Args:
        made: The instructions so far.
        op: The einsum.
        shape: Shape of its result.
        operands: Ids of its operands.
    """
    equation = _EINSUM.fullmatch(op.attrs.get("equation", "").replace(" ", ""))
    if equation is None or len(operands) != 2:
        raise NotStatic(_UNREAD.format(f"Einsum({op.attrs.get('equation', '')})"))
    left, right, result = equation.groups()
    shared = [letter for letter in left if letter in right]

    def places(operand: str, batch: bool) -> tuple[int, ...]:
        return tuple(operand.index(letter) for letter in shared if (letter in result) == batch)

    dims = DotDimensions(
        places(left, False), places(right, False), places(left, True), places(right, True)
    )
    return made.add("dot", op, shape, operands, dot=dims)


def _convolution(made: _Made, op: OpNode, shape: Shape, kind: re.Match[str]) -> int:
    """
    Make a convolution or the gradient of one, as XLA writes it.

    Operands that only give sizes are ignored. Source:
    tensorflow/compiler/tf2xla/kernels/conv_op_helpers.cc.

    Args:
        made: The instructions so far.
        op: The convolution.
        shape: Shape of its result.
        kind: Match of its type: the convolution, and which gradient it is.
    """
    keys = [made.places[edge] for edge in op.inputs if edge is not None and edge in made.places]
    keys = [key for key in keys if len(made.ops[key].shape.dimensions) > 2]
    if len(keys) != 2:
        raise NotStatic(_OPEN.format(op.name, op.op_type))
    rank = len(shape.dimensions)
    first = op.attrs.get("data_format", "NHWC").startswith("NC")
    feature = 1 if first else rank - 1
    spatial = tuple(range(2, rank)) if first else tuple(range(1, rank - 1))
    window = tuple(range(rank - 2))
    inner, outer = rank - 2, rank - 1
    gradient = kind[2] or ""
    groups = 2 if kind[1].startswith("Depthwise") else 1
    if gradient == "BackpropInput":
        keys.reverse()  # its operands are the kernel and the gradient of the result
        dims = ConvolutionDimensions(0, feature, spatial, outer, inner, window, 0, feature, spatial)
    elif gradient:
        dims = ConvolutionDimensions(feature, 0, spatial, 0, feature, spatial, inner, outer, window)
    else:
        dims = ConvolutionDimensions(0, feature, spatial, inner, outer, window, 0, feature, spatial)
    data = made.ops[keys[0]].shape.dimensions
    # The recorded attributes lack strides; a stride of two or more leaves half of the positions.
    strided = gradient == "BackpropInput" and any(
        2 * data[number] <= shape.dimensions[number] + 1 for number in spatial
    )
    moves = tuple(WindowDimension(1, base_dilation=2 if strided else 1) for _ in window)
    return made.add(
        "convolution", op, shape, keys, convolution=dims, window=moves, feature_groups=groups
    )
