"""
Work of a TPU's matrix unit on padding, because sizes do not fill it.

This is a model, not checked against hardware: one operand streams through in rows of 8, the
remaining two sizes fill the square array. The FLOPs of M × N × K are 2·M·N·K; a convolution is the
product of its windows and its kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from pytest_tfperf.hlo.module import HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.products import Matmul, matmul_of
from pytest_tfperf.hlo.walk import BODIES, bodies
from pytest_tfperf.padding.tiles import SUBLANES, Generation


@dataclass(frozen=True, slots=True)
class Product:
    """
    A matrix multiplication, M × K by K × N.

    Each size is (size, repeats): the positions of a window repeat the features. They may fill the
    matrix unit together, or each position alone.
    """

    name: str
    """Name of the instruction."""
    m: tuple[int, int]
    """Rows of the result, as (size, repeats)."""
    n: tuple[int, int]
    """Columns of the result, as (size, repeats)."""
    k: tuple[int, int]
    """Contracted size, as (size, repeats)."""
    count: float = 1
    """Number of multiplications."""
    line: str = ""
    """The user's source line, empty if the module does not name it."""

    @property
    def text(self) -> str:
        """M, N and K: `100×1000×2048`."""
        return "×".join(str(prod(size)) for size in (self.m, self.n, self.k))

    @property
    def macs(self) -> float:
        """Number of multiply-adds."""
        return self.count * prod(self.m) * prod(self.n) * prod(self.k)

    def padded(self, width: int) -> tuple[float, float]:
        """Compute lower and upper bound of the multiply-adds with padding on a matrix unit."""
        together = [size * repeats for size, repeats in (self.m, self.n, self.k)]
        least = _least([[_up(size, step) for size in together] for step in (SUBLANES, width)])
        alone = [
            [_up(size, step) * repeats for size, repeats in (self.m, self.n, self.k)]
            for step in (SUBLANES, width)
        ]
        return self.count * least, self.count * max(least, _least(alone))

    def steps(self, width: int) -> dict[int, int]:
        """
        Return the sizes that leave padding, each with the number that it should be a multiple of.

        Args:
            width: Rows and columns of the matrix unit.
        """
        m, n, k = (size * repeats for size, repeats in (self.m, self.n, self.k))
        m_streams = _up(m, SUBLANES) * _up(n, width) <= _up(n, SUBLANES) * _up(m, width)
        streamed, filling = (m, n) if m_streams else (n, m)
        steps = {streamed: SUBLANES} | {filling: width, k: width}
        return {size: step for size, step in steps.items() if size % step}


def better_sizes(products: Iterable[Product], width: int) -> list[str]:
    """
    Return changes of sizes that leave no padding in any of some products: `129 → 128 or 256`.

    A size of less than half of its step is given by the task, as one result or ten classes are.

    Args:
        products: The products.
        width: Rows and columns of the matrix unit.
    """
    steps: dict[int, int] = {}
    for one in products:
        for size, step in one.steps(width).items():
            steps[size] = max(step, steps.get(size, 0))
    near = {
        size: [str(one) for one in (size // step * step, _up(size, step)) if one]
        for size, step in steps.items()
        if 2 * size >= step
    }
    return [f"{size} → {' or '.join(sizes)}" for size, sizes in near.items()]


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """The products of a step."""

    products: tuple[Product, ...]
    """The products of the step."""
    skipped: tuple[str, ...] = ()
    """Names of grouped convolutions, which the model does not cover."""

    def overhead(self, generation: Generation) -> tuple[float, float] | None:
        """Compute lower and upper bound of padded ÷ logical FLOPs − 1; None without products."""
        macs = sum(one.macs for one in self.products)
        padded = [one.padded(generation.matrix_width) for one in self.products]
        return (
            (sum(low for low, _ in padded) / macs - 1, sum(high for _, high in padded) / macs - 1)
            if macs
            else None
        )

    def worst(self, generation: Generation, number: int = 3) -> list[Product]:
        """Return the products that waste most."""
        waste = {one: one.padded(generation.matrix_width)[0] - one.macs for one in self.products}
        return sorted(
            (one for one, padding in waste.items() if padding), key=lambda one: -waste[one]
        )[:number]


def matrix_work(modules: Iterable[tuple[HloModule, float]]) -> MatrixWork:
    """Collect the products of modules with their runs in a step; loop bodies count once."""
    products: list[Product] = []
    skipped: list[str] = []
    for module, runs in modules:
        for part in bodies(module, BODIES | {"fusion"}):
            for op in part.instructions.values():
                if op.opcode == "convolution" and max(op.feature_groups, op.batch_groups) > 1:
                    skipped.append(op.op_name or op.name)
                elif op.opcode in ("dot", "convolution"):
                    matmul = matmul_of(op, part.operands(op))
                    products += [_product(op, matmul, runs)] if matmul else []
    return MatrixWork(tuple(products), tuple(dict.fromkeys(skipped)))


def _product(op: HloInstruction, matmul: Matmul, runs: float) -> Product:
    """
    Split a convolution's sizes into features and their repeats.

    Where the input is dilated, as in gradients of strided convolutions, only its own positions
    count. In the gradient of a kernel the examples are summed and the window is the result.
    """
    m, n, k = (matmul.rows, 1), (matmul.columns, 1), (matmul.depth, 1)
    if (windows := matmul.windows) and windows.is_kernel_gradient:
        m = (windows.examples, windows.own_positions)
    elif windows:
        m = (windows.examples * windows.own_positions, 1)
        k = (windows.channels_in, windows.taps)
    count, line = matmul.batch * runs, source_line(op) or ""
    return Product(op.op_name or op.name, m, n, k, count, line)


def _least(sizes: Sequence[Sequence[int]]) -> int:
    """
    Return the lower cost: M streams and N × K fill the array, or N streams and M × K do.

    The sizes are (streamed, filling).
    """
    (m_rows, n_rows, _), (m, n, k) = sizes
    return min(m_rows * n * k, n_rows * m * k)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
