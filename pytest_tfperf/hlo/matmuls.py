"""
The matrix multiplications and convolutions of XLA modules, optimised or not, as a GPU's libraries see them: rows, columns and depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from pytest_tfperf.hlo.flops import library_convolution, library_dot
from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    source_line,
)
from pytest_tfperf.hlo.traversal import is_convolution, is_kernel_gradient

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
_Sizes = tuple[int, int, int, int, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """
    A matrix multiplication of `rows` × `depth` by `depth` × `columns`, `batch` times, or a convolution as one.

    `sizes` are those that have to be aligned, by name: of a convolution its channels alone.
    """

    op: str
    dtype: str
    rows: int
    columns: int
    depth: int
    sizes: tuple[tuple[str, int], ...]
    batch: int = 1
    line: str | None = None

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * self.batch * self.rows * self.columns * self.depth


def gemms_of(modules: Iterable[HloModule]) -> list[Gemm]:
    """
    The matrix multiplications and convolutions of modules, optimised or not, also those inside fusions and loops.

    Left out: grouped convolutions, products with a vector, and types that no tensor core multiplies.
    """
    return [
        found
        for module in modules
        for part in module.computations.values()
        for op in part.instructions.values()
        if (found := _gemm(part, op)) is not None
    ]


def _gemm(part: HloComputation, op: HloInstruction) -> Gemm | None:
    operands = part.operands(op)
    found: _Sizes | None
    if op.opcode in ("dot", "scaled-dot") and op.dot:
        found = _multiplied(op.dot, operands[0].shape, operands[1].shape)
    elif (
        op.opcode == "convolution" and op.convolution and op.feature_groups == op.batch_groups == 1
    ):
        found = _convolved(op, op.convolution, operands[0].shape, operands[1].shape)
    elif op.opcode == "custom-call" and (dot := library_dot(op)):
        found = _multiplied(dot, operands[0].shape, operands[1].shape)
    elif op.opcode == "custom-call" and op.convolution and op.feature_groups == 1:
        found = _by_library(op, op.convolution, operands)
    else:
        return None
    dtype = operands[0].shape.dtype if operands else ""
    if found is None or not bits(dtype):
        return None
    rows, columns, depth, batch, sizes = found
    if min(rows, columns, depth, batch) < 1 or 1 in (rows, columns):
        return None
    return Gemm(
        op=op.op_name or op.name,
        dtype=dtype,
        rows=rows,
        columns=columns,
        depth=depth,
        sizes=sizes,
        batch=batch,
        line=source_line(op),
    )


def _multiplied(dot: DotDimensions, lhs: Shape, rhs: Shape) -> _Sizes:
    """Rows, columns, depth and batch of a matrix multiplication, and which of them to align."""
    batch = prod(lhs.dimensions[number] for number in dot.lhs_batch)
    depth = prod(lhs.dimensions[number] for number in dot.lhs_contracting)
    rows = prod(
        size
        for number, size in enumerate(lhs.dimensions)
        if number not in dot.lhs_batch + dot.lhs_contracting
    )
    columns = prod(
        size
        for number, size in enumerate(rhs.dimensions)
        if number not in dot.rhs_batch + dot.rhs_contracting
    )
    return rows, columns, depth, batch, (("rows", rows), ("columns", columns), ("depth", depth))


def _convolved(
    op: HloInstruction, dims: ConvolutionDimensions, data: Shape, kernel: Shape
) -> _Sizes:
    """
    A convolution as one matrix multiplication: an output position by all that its kernel reads.

    In the gradient of a kernel HLO calls the input's channels batch (`f01b_i01o->01bf`).
    """
    out = next(op.shape.arrays(), op.shape).dimensions
    columns, depth = out[dims.output_feature], kernel.dimensions[dims.kernel_input_feature]
    channels = (
        data.dimensions[dims.input_batch]
        if is_convolution(op) and is_kernel_gradient(op)
        else depth
    )
    rows = out[dims.output_batch] * prod(out[number] for number in dims.output_spatial)
    depth *= prod(kernel.dimensions[number] for number in dims.kernel_spatial)
    names = (
        (("channels in", channels), ("channels out", columns))
        if dims.input_spatial
        else (("rows", rows), ("columns", columns), ("depth", depth))
    )
    return rows, columns, depth, 1, names


def _by_library(
    op: HloInstruction, dims: ConvolutionDimensions, operands: tuple[HloInstruction, ...]
) -> _Sizes | None:
    """The same of cuDNN's calls, whose labels are those of the forward convolution."""
    shapes = library_convolution(op, operands)
    if shapes is None:
        return None
    data, kernel, output = (shape.dimensions for shape in shapes)
    channels, features = kernel[dims.kernel_input_feature], kernel[dims.kernel_output_feature]
    taps = prod(kernel[number] for number in dims.kernel_spatial)
    positions = output[dims.output_batch] * prod(output[number] for number in dims.output_spatial)
    names = (("channels in", channels), ("channels out", features))
    if op.custom_call_target == "__cudnn$convBackwardFilter":
        return taps * channels, features, positions, 1, names
    if op.custom_call_target == "__cudnn$convBackwardInput":
        places = data[dims.input_batch] * prod(data[number] for number in dims.input_spatial)
        return places, channels, taps * features, 1, names
    return positions, features, taps * channels, 1, names


def bits(dtype: str) -> int:
    """Bits of a type that tensor cores multiply, 0 for others. Float32 is multiplied as TF32, in as many bytes."""
    return 8 if dtype in ("s8", "u8") or dtype.startswith("f8e") else _BITS.get(dtype, 0)
