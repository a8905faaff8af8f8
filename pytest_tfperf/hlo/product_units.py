"""
Find the operand types of products that XLA computes in kernels of its own, as by Triton.

The names of these kernels are those of the fusions, and tell nothing of their units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_HALF, _SINGLE = 16, 32  # bits
_HIGHEST = 2  # xla_data.proto, PrecisionConfig.Precision
_IN_SINGLE = range(11, 13)  # ALG_DOT_F32_F32_F32 and ALG_DOT_F64_F64_F64 of its Algorithm


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
