"""
The matrix multiplications and convolutions of XLA modules, each read as one matrix multiplication.

GPU libraries' calls are read as the product or convolution that they stand for, as
xla/service/gpu/model/gpu_hlo_cost_analysis.cc does (openxla/xla).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from pytest_tfperf.hlo.module import ConvolutionDimensions, DotDimensions, HloInstruction, Shape
from pytest_tfperf.hlo.walk import is_convolution, is_kernel_gradient

Operands = tuple[HloInstruction, ...]
ConvolutionShapes = tuple[Shape, Shape, Shape]
"""Input, kernel and output of a convolution; of a library's gradient, those of the forward one."""

_GEMMS = ("__cublas$gemm", "__cublas$lt$matmul")
"""And __cublas$lt$matmul$f8: xla/service/gpu/cublas_cudnn.cc."""
_INPUT_GRADIENT = "__cudnn$convBackwardInput"
_KERNEL_GRADIENT = "__cudnn$convBackwardFilter"
_CONVOLUTIONS = {
    "__cudnn$convForward": (0, 1, 2),
    "__cudnn$convForwardGraph": (0, 1, 2),
    "__cudnn$convBiasActivationForward": (0, 1, 2),
    _INPUT_GRADIENT: (2, 1, 0),
    _KERNEL_GRADIENT: (0, 2, 1),
}
"""Places of the forward convolution's input, kernel and output: operands 0 and 1, the result 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionWindows:
    """The windows of a convolution, which factor the rows and the depth of its multiplication."""

    examples: int
    """Images of the batch."""
    positions: int
    """Positions of the window in the result; rows are examples × positions."""
    own_positions: int
    """Positions that meet elements of a dilated input, else `positions`."""
    taps: int
    """Elements of the kernel that belong to one channel; depth is channels × taps."""
    channels_in: int
    """Input features."""
    channels_out: int
    """Output features."""
    is_kernel_gradient: bool
    """True for a convolution that computes the gradient of a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """A matrix multiplication: rows × depth by depth × columns, `batch` times."""

    rows: int
    """Rows of the left operand and the result."""
    columns: int
    """Columns of the right operand and the result."""
    depth: int
    """Contracted size."""
    batch: int = 1
    """Number of independent products."""
    windows: ConvolutionWindows | None = None
    """The windows of a convolution; None for one without spatial dimensions, which has none."""

    @property
    def flops(self) -> int:
        """FLOPs, two for each multiply-add."""
        return 2 * self.batch * self.rows * self.columns * self.depth

    @property
    def aligned_sizes(self) -> tuple[tuple[str, int], ...]:
        """The sizes to align, by name: of a convolution only its channels."""
        if self.windows:
            channels = self.windows.channels_in, self.windows.channels_out
            return ("channels in", channels[0]), ("channels out", channels[1])
        return ("rows", self.rows), ("columns", self.columns), ("depth", self.depth)


def matmul_of(op: HloInstruction, operands: Operands) -> Matmul | None:
    """
    Read an instruction as a matrix multiplication; None if it is not one.

    The groups of a grouped convolution are ignored.
    """
    dot = op.dot if op.opcode in ("dot", "scaled-dot") else library_dot(op)
    if dot is not None:
        return _multiplied(dot, operands[0].shape.dimensions, operands[1].shape.dimensions)
    shapes = convolution_shapes(op, operands)
    if shapes is None or op.convolution is None:
        return None
    if op.opcode == "custom-call":
        return _by_library(op, op.convolution, *(shape.dimensions for shape in shapes))
    return _convolved(op, op.convolution, *(shape.dimensions for shape in shapes))


def convolution_shapes(op: HloInstruction, operands: Operands) -> ConvolutionShapes | None:
    """Return input, kernel and output of a convolution or a cuDNN call; None for other ops."""
    places = (0, 1, 2) if op.opcode == "convolution" else _CONVOLUTIONS.get(op.custom_call_target)
    if places is None:
        return None
    result = next(op.shape.arrays(), op.shape)  # a library's call returns scratch memory as well
    shapes = (operands[0].shape, operands[1].shape, result)
    data, kernel, output = (shapes[place] for place in places)
    return data, kernel, output


def library_dot(op: HloInstruction) -> DotDimensions | None:
    """
    Return the dimensions that a cuBLAS call multiplies; None for other ops.

    Source: GemmBackendConfig.dot_dimension_numbers (xla/service/gpu/backend_configs.proto). Older
    versions of XLA write it without the message around it.
    """
    if not op.custom_call_target.startswith(_GEMMS):
        return None
    config = op.config
    inner = config.get("gemm_backend_config", config)
    numbers = inner.get("dot_dimension_numbers") if isinstance(inner, dict) else None
    if not isinstance(numbers, dict):
        return None
    keys = [
        f"{operand}_{kind}_dimensions"
        for kind in ("contracting", "batch")
        for operand in ("lhs", "rhs")
    ]
    return DotDimensions(*(tuple(int(number) for number in numbers.get(key, ())) for key in keys))


def _multiplied(dot: DotDimensions, lhs: Sequence[int], rhs: Sequence[int]) -> Matmul:
    def free(sizes: Sequence[int], used: Sequence[int]) -> int:
        return prod(size for number, size in enumerate(sizes) if number not in used)

    return Matmul(
        rows=free(lhs, dot.lhs_batch + dot.lhs_contracting),
        columns=free(rhs, dot.rhs_batch + dot.rhs_contracting),
        depth=prod(lhs[number] for number in dot.lhs_contracting),
        batch=prod(lhs[number] for number in dot.lhs_batch),
    )


def _convolved(
    op: HloInstruction,
    dims: ConvolutionDimensions,
    data: Sequence[int],
    kernel: Sequence[int],
    output: Sequence[int],
) -> Matmul:
    """
    Read XLA's own convolution: a row for each window, the kernel as columns.

    In the gradient of a kernel HLO calls the input's channels batch (`f01b_i01o->01bf`). Where the
    input is dilated, as in the gradient of a strided convolution, zeros lie between its elements.
    """
    gradient = is_convolution(op) and is_kernel_gradient(op)
    examples, columns = output[dims.output_batch], output[dims.output_feature]
    depth = kernel[dims.kernel_input_feature]
    positions = prod(output[number] for number in dims.output_spatial)
    taps = prod(kernel[number] for number in dims.kernel_spatial)
    dilated = any(window.base_dilation > 1 for window in op.window)
    windows = ConvolutionWindows(
        examples=examples,
        positions=positions,
        own_positions=prod(data[number] for number in dims.input_spatial) if dilated else positions,
        taps=taps,
        channels_in=data[dims.input_batch] if gradient else depth,
        channels_out=columns,
        is_kernel_gradient=gradient,
    )
    return Matmul(
        rows=examples * positions,
        columns=columns,
        depth=depth * taps,
        windows=windows if dims.input_spatial else None,
    )


def _by_library(
    op: HloInstruction,
    dims: ConvolutionDimensions,
    data: Sequence[int],
    kernel: Sequence[int],
    output: Sequence[int],
) -> Matmul:
    """Read cuDNN's convolution, whose labels and shapes are those of the forward convolution."""
    channels, features = kernel[dims.kernel_input_feature], kernel[dims.kernel_output_feature]
    taps = prod(kernel[number] for number in dims.kernel_spatial)
    positions = prod(output[number] for number in dims.output_spatial)
    examples = output[dims.output_batch]
    rows, columns, depth = examples * positions, features, taps * channels
    if op.custom_call_target == _KERNEL_GRADIENT:
        rows, depth = depth, rows
    elif op.custom_call_target == _INPUT_GRADIENT:
        examples = data[dims.input_batch]
        positions = prod(data[number] for number in dims.input_spatial)
        rows, columns, depth = examples * positions, channels, taps * features
    windows = ConvolutionWindows(
        examples=examples,
        positions=positions,
        own_positions=positions,
        taps=taps,
        channels_in=channels,
        channels_out=features,
        is_kernel_gradient=op.custom_call_target == _KERNEL_GRADIENT,
    )
    return Matmul(rows=rows, columns=columns, depth=depth, windows=windows)
