"""
FLOPs of single HLO instructions: the operations on floating-point numbers.

A multiply-add of a product counts as two operations, of any type, and an element of another
elementwise op as one if the operands and the result are floating-point or complex numbers, be it an
addition or a tanh. Integers, booleans, casts, comparisons, selections and sorts count as none. A
cumulative sum of n elements is n − 1 additions. Calls of GPU libraries count as the product
or convolution they stand for.

XLA's HloCostAnalysis (openxla/xla, xla/service/hlo_cost_analysis.cc) counts each element of integer
work, n log n for a sort, and n − 1 for each of n elements of a cumulative sum. It counts functions
such as tanh apart. Other counts are as there.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod

from pytest_tfperf.hlo.matmuls import Operands, convolution_shapes, matmul_of
from pytest_tfperf.hlo.module import HloInstruction, Shape, WindowDimension

_ARITHMETIC = frozenset(
    [
        "abs",
        "add",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "cosine",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "log",
        "log-plus-one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "power",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
    ]
)
_COMPLEX_MULTIPLY_ADDS = 4
_LONGEST_WINDOW = 1 << 20  # positions; far more than a model's window has


def matmul_flops(op: HloInstruction, operands: Operands) -> int | None:
    """
    Count the FLOPs of a matrix multiplication or convolution; None for other instructions.

    Calls of GPU libraries count as well.
    """
    shapes = convolution_shapes(op, operands)
    if shapes is not None:
        return _convolution_flops(op, *shapes)
    matmul = matmul_of(op, operands)
    return None if matmul is None else matmul.flops


def own_flops(op: HloInstruction, operands: Operands) -> int:
    """Count the FLOPs of another instruction, without those of the computations it calls."""
    if op.opcode in _ARITHMETIC:
        shapes = (op.shape, *(operand.shape for operand in operands))
        return op.shape.elements if all(shape.is_floating for shape in shapes) else 0
    if op.opcode in ("all-reduce", "all-reduce-start"):
        return sum(array.elements for array in op.shape.arrays() if array.is_floating)
    if op.opcode == "fft":
        factors = prod(size.bit_length() - 1 for size in op.fft_length)
        return 2 * _COMPLEX_MULTIPLY_ADDS * factors * operands[0].shape.elements
    if op.opcode == "triangular-solve":
        return 2 * operands[0].shape.dimensions[-1] * operands[1].shape.elements
    if op.opcode == "cholesky":
        return operands[0].shape.dimensions[-1] * operands[0].shape.elements // 3
    return 0


def applications(op: HloInstruction, operands: Operands) -> tuple[int, ...]:
    """
    Return how often an instruction runs each computation that it calls.

    The result is empty for a conditional, which runs one of several.
    """
    if op.opcode in ("fusion", "call", "async-start"):
        return (1,)
    if op.opcode == "while":
        return (1, 1) if op.trip_count is None else (op.trip_count, op.trip_count + 1)
    result = next(op.shape.arrays(), op.shape).elements
    window = prod(dimension.size for dimension in op.window)
    if op.opcode == "map":
        return (result,)
    if op.opcode == "reduce":
        return (max(0, operands[0].shape.elements - result),)
    if op.opcode == "reduce-window":
        scanned = _scanned(op, operands[0].shape)
        return (scanned if scanned is not None else (window - 1) * result,)
    if op.opcode == "select-and-scatter":
        source = operands[1].shape.elements
        return ((window - 1) * source, source)
    if op.opcode == "scatter":
        return (operands[len(operands) // 2 + 1].shape.elements,)
    return ()


def _scanned(op: HloInstruction, data: Shape) -> int | None:
    """
    Count the runs of the reducer in a cumulative sum or the like; None for other windows.

    There the window is as long as one dimension, and padded on one side at most: each result adds
    an element to the one beside it.
    """
    moved = [
        (window, size)
        for window, size in zip(op.window, data.dimensions, strict=False)
        if window != WindowDimension(1)
    ]
    if len(moved) != 1:
        return None
    window, size = moved[0]
    is_dilated = (window.window_dilation, window.base_dilation) != (1, 1)
    is_scan = window.size == size and min(window.padding_low, window.padding_high) == 0
    return data.elements // size * (size - 1) if is_scan and not is_dilated else None


def _convolution_flops(op: HloInstruction, data: Shape, kernel: Shape, output: Shape) -> int | None:
    """
    Count the multiply-adds with elements of the input, times two.

    Positions in the padding and in the holes of a dilated input are not computed.
    """
    d = op.convolution
    if d is None:
        return None
    spatial = zip(op.window, d.input_spatial, d.kernel_spatial, d.output_spatial, strict=True)
    taps = prod(
        _taps(w, data.dimensions[i], kernel.dimensions[k], output.dimensions[o])
        for w, i, k, o in spatial
    )
    features = (
        data.dimensions[d.input_feature] // op.feature_groups * output.dimensions[d.output_feature]
    )
    return 2 * taps * features * (data.dimensions[d.input_batch] // op.batch_groups)


@lru_cache(maxsize=4096)
def _taps(window: WindowDimension, n_input: int, n_kernel: int, n_output: int) -> int:
    """
    Count the pairs of a kernel and an output position, along one dimension, that meet an element.

    Output o and kernel k meet place o × stride + k × window dilation − padding. An element lies at
    each multiple of the base dilation. For each position of the shorter of kernel and output, the
    matching positions of the longer one are counted; they solve a congruence.
    """
    (n_few, few), (n_many, many) = sorted(
        [(n_kernel, window.window_dilation), (n_output, window.stride)]
    )
    if n_few > _LONGEST_WINDOW:
        raise ValueError(f"a window of {n_few} positions")
    shared = gcd(many, window.base_dilation)
    period = window.base_dilation // shared
    inverse = pow(many // shared, -1, period)
    total = 0
    for position in range(n_few):
        place = position * few - window.padding_low
        low = max(0, -(place // many))
        high = min(n_many - 1, ((n_input - 1) * window.base_dilation - place) // many)
        if place % shared == 0 and low <= high:
            first = -place // shared * inverse % period
            total += (high - first) // period - (low - 1 - first) // period
    return total
