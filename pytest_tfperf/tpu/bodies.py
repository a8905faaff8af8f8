"""A program's HLO as the rules walk it: producers, consumers, and what moves no data in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.walk import BODIES, bodies, is_convolution, is_identity, is_kernel_gradient
from pytest_tfperf.op_types import MATMULS

Found = Iterator[tuple[HloInstruction, str]]
"""Instructions that break a rule, each with a description."""

CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
EINSUMS = frozenset({"Einsum", "XlaEinsum"})
PRODUCTS = MATMULS | CONVOLUTIONS | EINSUMS
BIASES = frozenset({"BiasAdd", "BiasAddV1"})
_IN_PLACE = frozenset({"broadcast", "convert", "copy", "opt-barrier"})


@dataclass(frozen=True, slots=True)
class Body:
    """The entry of a program without calls, or the body of a loop or branch in it."""

    module: HloModule
    part: HloComputation
    in_loop: bool
    """True if it runs in a loop within the step."""
    of_tensorflow: bool
    """True if TensorFlow made the program, whose instructions name the types of its ops."""
    consumers: Mapping[int, Sequence[tuple[HloInstruction, int]]]
    """For each instruction its consumers, each with the number of the operand."""
    copies: Mapping[int, int]
    """For each instruction the number of inlined copies of it that come before."""

    @property
    def instructions(self) -> Collection[HloInstruction]:
        """The instructions, operands before their users."""
        return self.part.instructions.values()

    def is_of(self, op: HloInstruction, types: Collection[str]) -> bool:
        """Return whether an op of TensorFlow has one of some types; other frameworks' always do."""
        return op.op_type in types if self.of_tensorflow else True

    def ops(self, opcodes: Collection[str], types: Collection[str]) -> Iterator[HloInstruction]:
        """Yield the instructions with some opcodes, of ops of some types."""
        return (op for op in self.instructions if op.opcode in opcodes and self.is_of(op, types))

    def whole(self, types: Collection[str]) -> Iterator[Sequence[HloInstruction]]:
        """Yield all instructions of each op of some types of TensorFlow."""
        groups: dict[Hashable, list[HloInstruction]] = {}
        for op in self.instructions:
            if self.of_tensorflow and op.op_type in types:
                groups.setdefault(self.op_of(op), []).append(op)
        yield from groups.values()

    def op_of(self, op: HloInstruction) -> Hashable:
        """Return what tells the op that an instruction is of."""
        if self.of_tensorflow and op.op_type:
            return op.op_type, op.op_name, self.copies[op.id]
        is_split = op.opcode == "slice" and op.op_name.endswith("/split")  # of JAX
        return (op.op_name, *op.operands) if is_split else op.id

    def operand(self, op: HloInstruction, position: int = 0) -> HloInstruction:
        """Return the instruction that makes an operand."""
        return self.part.instructions[op.operands[position]]

    def given(self, group: Sequence[HloInstruction]) -> HloInstruction:
        """Return the largest operand that the instructions of an op take from others."""
        own = {op.id for op in group}
        taken = [one for op in group for one in self.part.operands(op) if one.id not in own]
        return max(taken, key=lambda one: one.shape.elements, default=group[-1])

    def origin(
        self,
        op: HloInstruction,
        position: int = 0,
        through: Callable[[Body, HloInstruction], bool] | None = None,
    ) -> HloInstruction:
        """Return the instruction behind an operand, by default past those that move nothing."""
        found, passes = self.operand(op, position), through or in_place
        while passes(self, found) and found.operands:
            found = next(
                (one for one in self.part.operands(found) if one.opcode != "broadcast"),
                self.operand(found),
            )
        return found

    def users(
        self, op: HloInstruction, through: Callable[[Body, HloInstruction], bool] | None = None
    ) -> list[tuple[HloInstruction, int]]:
        """Return the consumers behind an instruction, by default past those that move nothing."""
        found, waiting, seen, passes = [], [op], {op.id}, through or in_place
        while waiting:
            for user, position in self.consumers[waiting.pop().id]:
                if not passes(self, user):
                    found.append((user, position))
                elif user.id not in seen:
                    seen.add(user.id)
                    waiting.append(user)
        return found

    def feeds_one(self, op: HloInstruction) -> bool:
        """Return whether one op alone takes an instruction's result."""
        return len({self.op_of(user) for user, _ in self.consumers[op.id]}) == 1

    def reduces_by(self, op: HloInstruction) -> str:
        """Return the opcode by which a reduction combines two numbers."""
        return self.module.computations[op.called[0]].root.opcode if op.called else ""


def bodies_of(module: HloModule) -> Iterator[Body]:
    """Yield the bodies of a module whose functions are inlined, the entry first."""
    looped: set[int] = set()
    for key, part in reversed(module.computations.items()):  # callers before their callees
        for op in part.instructions.values():
            if op.opcode in BODIES and (op.opcode == "while" or key in looped):
                looped.update(op.called)
    parts = bodies(module)
    of_tensorflow = any(
        op.op_type[:1].isupper() for part in parts for op in part.instructions.values()
    )
    for part in parts:
        consumers: dict[int, list[tuple[HloInstruction, int]]] = {
            key: [] for key in part.instructions
        }
        n_before: Counter[str] = Counter()
        copies = {}
        for op in part.instructions.values():
            copies[op.id] = n_before[op.name]  # names are unique, except for copies
            n_before[op.name] += 1
            for position, key in enumerate(op.operands):
                consumers[key].append((op, position))
        yield Body(module, part, part.id in looped, of_tensorflow, consumers, copies)


def in_place(body: Body, op: HloInstruction) -> bool:
    """Return whether an instruction passes on an operand with every element in its place."""
    return op.opcode in _IN_PLACE or op.op_type in BIASES or is_identity(op, body.part)


def is_einsum(body: Body, op: HloInstruction) -> bool:
    """Return whether an instruction is of a product that takes dimensions in any order."""
    if body.of_tensorflow:
        return op.op_type in EINSUMS
    return op.opcode == "dot" or (op.opcode == "convolution" and not is_convolution(op))


def is_gradient(op: HloInstruction) -> bool:
    """Return whether a convolution is a gradient, as far as it tells."""
    return "Backprop" in op.op_type or is_kernel_gradient(op)


def is_product(body: Body, op: HloInstruction) -> bool:
    """Return whether an instruction multiplies matrices or convolves, except for gradients."""
    if op.opcode == "convolution" and is_gradient(op):
        return False
    return op.opcode in ("dot", "convolution") and body.is_of(op, PRODUCTS)


def named(op: HloInstruction) -> str:
    """Return the name of an instruction's op."""
    return op.op_name or op.name


def kind(op: HloInstruction) -> str:
    """Return the type of an instruction's op in TensorFlow, or its opcode."""
    return op.op_type or op.opcode
