"""
The operand types that matrix multiplications were written with, before XLA widened them.

A CPU has no 16-bit units: XLA turns a bfloat16 dot into a float32 dot of converted operands
(xla/service/cpu/cpu_compiler.cc, float normalization; openxla/xla). Only the conversions show the
original types.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape

_HALF = 16  # bits
_EXACT = 8  # bits of integers that bfloat16 and float16 hold exactly
_DEEPEST = 16  # nested tuples
_MOVES = frozenset(
    [
        "copy",
        "bitcast",
        "transpose",
        "broadcast",
        "reshape",
        "dynamic-reshape",
        "reverse",
        "slice",
        "dynamic-slice",
        "gather",
        "opt-barrier",
        "copy-start",
        "copy-done",
    ]
)
_MERGES = {
    "concatenate": slice(None),
    "pad": slice(2),
    "select": slice(1, 3),
    "dynamic-update-slice": slice(2),
}

# a value: the computation, the instruction, and which part of its result
_Value = tuple[int, int, tuple[int, ...]]


class OperandTypes:
    """The types that a module's matrix multiplications were written with."""

    def __init__(self, module: HloModule) -> None:
        self.module = module

    def half(self, computation: HloComputation, op: HloInstruction) -> bool | None:
        """
        Return whether both factors of a matrix multiplication have 16 bits or fewer.

        None means that the module does not tell.
        """
        factors = computation.operands(op)[:2]
        if all(0 < factor.shape.bits <= _HALF for factor in factors):
            return True
        if not self._widens:
            return False
        origins = {
            wide for factor in factors for wide in self._origins((computation.id, factor.id, ()))
        }
        if origins == {False}:
            return True
        certain = self._keeps_conversions and origins != {False, None}
        return False if certain or not self._has_half else None

    def cast_before(self, name: str) -> str:
        """
        Return the name of the program's cast from 16 bits that made a product's operands wide.

        Of several it is the farthest from the product: what comes later is wide since that one.

        Args:
            name: Name of the product's instruction.

        Returns:
            An empty text if nothing before the product was cast, as where the arguments are wide.
        """
        parts = self.module.computations.values()
        found = ((part, op) for part in parts for op in part.instructions.values())
        part, product = next((part, op) for part, op in found if op.name == name)
        values: list[_Value] = [(part.id, key, ()) for key in product.operands]
        seen, cast = set(values), ""
        for key, number, path in values:  # breadth first
            part = self.module.computations[key]
            op = part.instructions[number]
            if op.shape.dtype != "tuple" and (
                not _is_float(op.shape.dtype) or op.shape.bits <= _HALF
            ):
                continue
            operands = part.operands(op)
            if op.opcode == "convert" and _is_half(operands[0].shape.dtype, operands[0].shape.bits):
                cast = (
                    op.name if _is_cast(op) else cast
                )  # else a product's, of its narrower operand
                continue
            before = list(self._sources(part, op, path)) or [(key, n, ()) for n in op.operands]
            new = [one for one in before if one not in seen and len(one[2]) <= _DEEPEST]
            seen.update(new)
            values += new
        return cast

    @cached_property
    def _widens(self) -> bool:
        """
        True if a CPU's compiler may have widened types.

        A TPU's layouts have tiles; a GPU's modules have calls and configurations of its own.
        """
        ops = [
            op for part in self.module.computations.values() for op in part.instructions.values()
        ]
        gpu = any(
            op.custom_call_target.startswith("__cu") or '"operation_queue_id"' in op.backend_config
            for op in ops
        )
        return (
            self.module.scheduled
            and not gpu
            and not any(shape.tiles for op in ops for shape in op.shape.arrays())
        )

    @cached_property
    def _has_half(self) -> bool:
        """True if any value has a floating type of 16 bits or fewer."""
        return any(
            _is_half(array.dtype, array.bits)
            for part in self.module.computations.values()
            for op in part.instructions.values()
            for array in op.shape.arrays()
        )

    @cached_property
    def _keeps_conversions(self) -> bool:
        """
        True if a value is converted to 16 bits and straight back somewhere.

        XLA removes such pairs everywhere if it may (xla_allow_excess_precision, on by default, off
        for TensorFlow). If one remains, a float32 operand without a conversion has been float32
        from the start.
        """
        for part in self.module.computations.values():
            for op in part.instructions.values():
                if op.opcode == "convert" and part.operands(op)[0].opcode == "convert":
                    narrow = part.operands(op)[0]
                    if (
                        narrow.shape.bits
                        <= _HALF
                        < min(op.shape.bits, part.operands(narrow)[0].shape.bits)
                    ):
                        return True
        return False

    @cached_property
    def _callers(self) -> dict[int, list[tuple[HloComputation, HloInstruction]]]:
        callers: dict[int, list[tuple[HloComputation, HloInstruction]]] = {}
        for part in self.module.computations.values():
            for op in part.instructions.values():
                for key in dict.fromkeys(op.called):
                    callers.setdefault(key, []).append((part, op))
        return callers

    def _origins(self, start: _Value) -> set[bool | None]:
        """
        Return whether the values that an operand is moved or converted from are wide ones.

        None means that the program's own cast widened a value. Then the product was meant to be
        wide, or that cast replaces an equal one of the compiler's. Constants and small integers fit
        any type and are skipped. Values in too deeply nested tuples count as wide.
        """
        origins: set[bool | None] = set()

        def sources(value: _Value) -> list[_Value]:
            computation, key, path = value
            op = self.module.computations[computation].instructions[key]
            if _is_half(op.shape.dtype, op.shape.bits):
                origins.add(False)
                return []
            if op.opcode in ("constant", "iota") or op.shape.bits in range(1, _EXACT + 1):
                return []
            if _is_cast(op):
                origins.add(None)
            found = list(self._sources(self.module.computations[computation], op, path))
            followed = [source for source in found if len(source[2]) <= _DEEPEST]
            if not found or len(followed) < len(found):
                origins.add(True)
            return followed

        reached([start], sources)
        return origins

    def _sources(
        self, part: HloComputation, op: HloInstruction, path: tuple[int, ...]
    ) -> Iterator[_Value]:
        """
        Yield the values that an instruction passes on unchanged, or only wider.

        Args:
            part: The computation of the instruction.
            op: The instruction.
            path: Indices of the part of a tuple result.
        """
        operands = part.operands(op)
        if op.opcode in _MOVES or (op.opcode == "convert" and _fits(operands[0].shape)):
            yield part.id, operands[0].id, path
        elif op.opcode in _MERGES:
            yield from ((part.id, operand.id, path) for operand in operands[_MERGES[op.opcode]])
        elif op.opcode == "get-tuple-element":
            yield part.id, operands[0].id, (op.tuple_index, *path)
        elif op.opcode == "tuple" and path:
            yield part.id, operands[path[0]].id, path[1:]
        elif op.opcode in ("fusion", "call", "while"):
            yield op.called[0], self.module.computations[op.called[0]].root_id, path
            if op.opcode == "while":
                yield part.id, operands[0].id, path
        elif op.opcode == "parameter":
            for caller, call in self._callers.get(part.id, ()):
                yield from (
                    (caller.id, key, path) for key in _argument(call, part.id, op.parameter_number)
                )


def _argument(call: HloInstruction, computation: int, number: int) -> tuple[int, ...]:
    """
    Return the operands of a call that a parameter of the called computation may hold.

    The state of a loop also comes from its body.

    Args:
        call: The call.
        computation: Id of the called computation.
        number: Number of the parameter.
    """
    if call.opcode in ("fusion", "call"):
        return call.operands[number : number + 1]
    if call.opcode == "while":
        return (call.id,)
    if call.opcode == "conditional":
        return tuple(
            call.operands[1 + branch]
            for branch, key in enumerate(call.called)
            if key == computation
        )
    return ()


def _is_cast(op: HloInstruction) -> bool:
    """Return whether a conversion is TensorFlow's Cast or JAX's convert_element_type."""
    return op.opcode == "convert" and (
        op.op_type == "Cast" or op.op_name.endswith("convert_element_type")
    )


def _fits(shape: Shape) -> bool:
    """
    Return whether the compiler may have widened this type.

    It widens floats, and integers that 16 bits hold.
    """
    return _is_float(shape.dtype) or shape.bits <= _EXACT


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def _is_half(dtype: str, bits: int) -> bool:
    return _is_float(dtype) and bits <= _HALF
