"""The matrix multiplications that a GPU's tensor cores compute, convolutions included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_tfperf.hlo.matmuls import Matmul, matmul_of
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """A matrix multiplication of an executable, with the op that made it."""

    op: str
    """Name of the framework's op, else of the instruction."""
    dtype: str
    """Type of the first operand, as in HLO text."""
    matmul: Matmul
    """Sizes of the product."""
    line: str | None = None
    """The user's source line."""


def gemms_of(modules: Iterable[HloModule]) -> list[Gemm]:
    """
    List the matrix multiplications and convolutions of modules, also those in fusions and loops.

    Grouped convolutions, products with a vector, and types that no tensor core multiplies are left
    out.
    """
    return [
        gemm
        for module in modules
        for part in module.computations.values()
        for op in part.instructions.values()
        if (gemm := _gemm(part, op)) is not None
    ]


def bits(dtype: str) -> int:
    """
    Return the bits of a type that tensor cores multiply, 0 for other types.

    Float32 is multiplied as TF32, which takes as many bytes.
    """
    return 8 if dtype in ("s8", "u8") or dtype.startswith("f8e") else _BITS.get(dtype, 0)


def _gemm(part: HloComputation, op: HloInstruction) -> Gemm | None:
    if op.feature_groups > 1 or op.batch_groups > 1:
        return None
    operands = part.operands(op)
    matmul = matmul_of(op, operands)
    dtype = operands[0].shape.dtype if operands else ""
    if matmul is None or not bits(dtype):
        return None
    if min(matmul.rows, matmul.columns, matmul.depth, matmul.batch) < 1:
        return None
    if 1 in (matmul.rows, matmul.columns):
        return None
    return Gemm(op=op.op_name or op.name, dtype=dtype, matmul=matmul, line=source_line(op))
