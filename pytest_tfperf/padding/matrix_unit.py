"""
What a TPU's matrix unit computes beyond what was asked for, because sizes do not fill it.

A model, checked against no hardware: one operand streams through in rows of 8, the other two sizes fill the square array. The FLOPs
of M × N × K are 2·M·N·K; a convolution is the product of its windows and its kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
)
from pytest_tfperf.hlo.traversal import BODIES, bodies, is_convolution, is_kernel_gradient
from pytest_tfperf.padding.tpu import SUBLANES, Generation


@dataclass(frozen=True, slots=True)
class Product:
    """
    A matrix multiplication, `count` times: M × K by K × N. Each size is (size, repeats): a window's positions repeat the features.

    They may fill the matrix unit together, or each position for itself.
    """

    name: str
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    count: float = 1

    @property
    def text(self) -> str:
        """`100×1000×2048`: M, N and K."""
        return "×".join(str(prod(size)) for size in (self.m, self.n, self.k))

    @property
    def macs(self) -> float:
        """Multiplications."""
        return self.count * prod(self.m) * prod(self.n) * prod(self.k)

    def padded(self, width: int) -> tuple[float, float]:
        """Multiplications with padding, at least and at most, on a matrix unit of this width."""
        together = [size * repeats for size, repeats in (self.m, self.n, self.k)]
        least = _least([[_up(size, step) for size in together] for step in (SUBLANES, width)])
        alone = [
            [_up(size, step) * repeats for size, repeats in (self.m, self.n, self.k)]
            for step in (SUBLANES, width)
        ]
        return self.count * least, self.count * max(least, _least(alone))


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """The products of a step; `skipped` names the grouped convolutions, of which nothing can be said."""

    products: tuple[Product, ...]
    skipped: tuple[str, ...] = ()

    def overhead(self, generation: Generation) -> tuple[float, float] | None:
        """Padded ÷ logical FLOPs − 1, at least and at most; None if there are none."""
        macs = sum(one.macs for one in self.products)
        padded = [one.padded(generation.matrix_width) for one in self.products]
        return (
            (sum(low for low, _ in padded) / macs - 1, sum(high for _, high in padded) / macs - 1)
            if macs
            else None
        )

    def worst(self, generation: Generation, number: int = 3) -> list[Product]:
        """The products that waste most."""
        waste = {one: one.padded(generation.matrix_width)[0] - one.macs for one in self.products}
        return sorted(
            (one for one, padding in waste.items() if padding), key=lambda one: -waste[one]
        )[:number]


def matrix_work(modules: Iterable[tuple[HloModule, float]]) -> MatrixWork:
    """The products of modules, each with how often it runs in a step; what is in a loop counts once."""
    products: list[Product] = []
    skipped: list[str] = []
    for module, runs in modules:
        for part in bodies(module, BODIES | {"fusion"}):
            for op in part.instructions.values():
                if op.opcode == "convolution" and max(op.feature_groups, op.batch_groups) > 1:
                    skipped.append(op.op_name or op.name)
                elif product := product_of(op, part):
                    products.append(replace(product, count=product.count * runs))
    return MatrixWork(tuple(products), tuple(dict.fromkeys(skipped)))


def product_of(op: HloInstruction, part: HloComputation) -> Product | None:
    """The product that a dot or convolution is; None for anything else."""
    name = op.op_name or op.name
    if op.opcode == "dot" and op.dot is not None:
        return _dot(name, op.dot, *(operand.shape.dimensions for operand in part.operands(op)[:2]))
    if op.opcode == "convolution" and op.convolution is not None:
        return _convolution(name, op, op.convolution, part)
    return None


def _dot(name: str, dims: DotDimensions, lhs: Sequence[int], rhs: Sequence[int]) -> Product:
    def free(sizes: Sequence[int], *taken: Sequence[int]) -> int:
        return prod(
            size for number, size in enumerate(sizes) if not any(number in some for some in taken)
        )

    m = free(lhs, dims.lhs_contracting, dims.lhs_batch)
    n = free(rhs, dims.rhs_contracting, dims.rhs_batch)
    k = prod(lhs[number] for number in dims.lhs_contracting)
    return Product(name, (m, 1), (n, 1), (k, 1), prod(lhs[number] for number in dims.lhs_batch))


def _convolution(
    name: str, op: HloInstruction, dims: ConvolutionDimensions, part: HloComputation
) -> Product:
    """
    The windows, rows of M, times the kernel. Of the gradient of a kernel the window is what stays, and the examples are summed.

    Where the input is dilated, as in gradients of strided convolutions, only its own positions count.
    """
    data, kernel = (operand.shape.dimensions for operand in part.operands(op)[:2])
    result = op.shape.dimensions
    dilated = any(window.base_dilation > 1 for window in op.window)
    where = (
        prod(data[number] for number in dims.input_spatial)
        if dilated
        else prod(result[number] for number in dims.output_spatial)
    )
    window = prod(kernel[number] for number in dims.kernel_spatial)
    features, outputs = kernel[dims.kernel_input_feature], result[dims.output_feature]
    batch = result[dims.output_batch]
    if is_convolution(op) and is_kernel_gradient(op):
        return Product(name, (batch, where), (outputs, 1), (features * window, 1))
    return Product(name, (batch * where, 1), (outputs, 1), (features, window))


def _least(sizes: Sequence[Sequence[int]]) -> int:
    """The cheaper of the two ways: M streams and N × K fill the array, or N streams and M × K do; by (streamed, filling) sizes."""
    (m_rows, n_rows, _), (m, n, k) = sizes
    return min(m_rows * n * k, n_rows * m * k)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
