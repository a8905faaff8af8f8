"""
The matrix multiplications and convolutions of XLA modules, with the types of their operands.

GPU libraries' calls are read as the product or convolution that they stand for, as
xla/service/gpu/model/gpu_hlo_cost_analysis.cc does (openxla/xla).

The names of these kernels are those of the fusions, and tell nothing of their units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
)
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
_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_HALF, _SINGLE = 16, 32  # bits
_HIGHEST = 2  # xla_data.proto, PrecisionConfig.Precision
_IN_SINGLE = range(11, 13)  # ALG_DOT_F32_F32_F32 and ALG_DOT_F64_F64_F64 of its Algorithm


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


@dataclass(frozen=True, slots=True)
class ProductUnits:
    """The units that compute the products of an instruction."""

    tensor_cores: bool
    """True if they can run on tensor cores."""
    half: bool
    """True if all operands have 16 bits or fewer."""


def product_units(modules: Mapping[str, HloModule]) -> dict[tuple[str, str], ProductUnits]:
    """
    Return the units of instructions that call a computation with products, by program and kernel.

    A program has its name with and without `(program id)`, and the empty one for kernels of unknown
    programs, as of XLA's autotuning. An entry stands for programs that agree.

    Products in float32 run on tensor cores as TF32, unless the highest precision or an algorithm in
    float32 is asked for.
    """
    found: dict[tuple[str, str], set[ProductUnits]] = {}
    for program, module in modules.items():
        for name, products in _products_by_caller(module):
            types = [_types(computation, op) for computation, op in products]
            units = ProductUnits(
                tensor_cores=all(
                    max(bits) <= _HALF or (max(bits) <= _SINGLE and _is_fast(op))
                    for bits, (_, op) in zip(types, products, strict=True)
                ),
                half=all(max(bits) <= _HALF for bits in types),
            )
            for title in (program, program.partition("(")[0], ""):
                found.setdefault((title, kernel_of(name)), set()).add(units)
    return {key: units.pop() for key, units in found.items() if len(units) == 1}


def kernel_of(instruction: str) -> str:
    """
    Return the name of the kernel that XLA generates for an instruction.

    Underscores stand for characters that an identifier lacks (llvm_ir::SanitizeFunctionName).
    """
    return _OTHERS.sub("_", instruction)


def _products_by_caller(
    module: HloModule,
) -> Iterator[tuple[str, list[tuple[HloComputation, HloInstruction]]]]:
    for computation in module.computations.values():
        for op in computation.instructions.values():
            called = [module.computations[one] for one in op.called if one in module.computations]
            products = [
                (one, inner)
                for one in called
                for inner in one.instructions.values()
                if inner.opcode in ("dot", "convolution", "scaled-dot")
            ]
            if op.opcode == "fusion" and products:
                yield op.name, products


def _types(computation: HloComputation, op: HloInstruction) -> list[int]:
    """Return the bits of a product's operands."""
    operands = (computation.instructions.get(one) for one in op.operands)
    return [operand.shape.bits for operand in operands if operand is not None] or [64]


def _is_fast(op: HloInstruction) -> bool:
    precision, algorithm = op.precision
    return algorithm not in _IN_SINGLE if algorithm else precision < _HIGHEST
