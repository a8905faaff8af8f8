"""The ops of a step's functions as one graph, as frozen values: it goes from the compilers' room to the rules of the op guide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Dims = tuple[int | None, ...]
Edge = tuple[int, int]
"""The index of an op in its graph, and which of its results."""
Ints = int | tuple["Ints", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A result of an op: its dimensions, None where one is not known, or None altogether, and the name of its type."""

    shape: Dims | None
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """
    An op: where its operands come from, None where that is not known; its results; the user's line that made it.

    `value` is the first result, where it is a small constant of whole numbers. `attrs` are those that a rule reads (`data_format`).
    `in_loop` says that it runs in a loop within the step, `compiles` that XLA has a kernel for it and its types.
    """

    name: str
    op_type: str
    inputs: tuple[Edge | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    value: Ints | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    line: str | None = None
    in_loop: bool = False
    compiles: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """
    The ops that a step's results and effects need, in the order in which they were made, and the results themselves.

    What a function calls stands in place of the call, so that an op's operands are known through it; bodies of loops and branches
    stand behind the ops that run them, and what changes from turn to turn comes from a Placeholder.
    """

    ops: tuple[Op, ...]
    results: tuple[Edge, ...] = ()
