"""Graphs of a step: frozen values that go from the compiler to analysis, and what one reaches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Dims = tuple[int | None, ...]
"""Dimensions of a tensor, None where one is not known."""
CALL = "StatefulPartitionedCall/"
"""Prefix of the names of ops in the function that a step calls."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A result of an op."""

    shape: Dims | None
    """Its dimensions, None where one is not known, or None altogether."""
    dtype: str
    op: str = ""
    """The name of the op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNode:
    """An op of a step's functions."""

    name: str
    """Its name behind those of the calls, loops and branches that it is in."""
    op_type: str
    """Its type, as TensorFlow registers it."""
    inputs: tuple[Tensor, ...] = ()
    """Its operands; those of calls and arguments have no op in the graph."""
    outputs: tuple[Tensor, ...] = ()
    line: str | None = None
    """The user's line that made it, of ops that compute and of large constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOp:
    """An op of the step's graph that is listed for a reason."""

    name: str
    op_type: str
    line: str | None
    """The user's source line that made it (`model.py:12`)."""
    why: str
    """The reason why it is listed."""
    fused: tuple[str, ...] = ()
    """The types of the ops that Grappler fused into it, empty of other ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """
    The graphs of one step, as TensorFlow's runtime instantiated them.

    A function that is called twice is counted twice.
    """

    before: Mapping[str, int]
    """Ops by type that Grappler was given, without arguments, results, calls and control flow."""
    after: Mapping[str, int]
    """The same of the ops that it left."""
    inside: Mapping[str, int] = field(default_factory=dict)
    """The compute nodes that XLA compiles, by type."""
    n_clusters: int = 0
    """Auto-clusters with some of them, which may not run after all."""
    outside: tuple[GraphOp, ...] = ()
    """The other compute nodes."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """The user's line of an op of each type that Grappler left, as far as known."""
    allocated: int = 0
    """Bytes of the largest result that an op outside XLA is certain to allocate."""


def reached(start: Iterable[Key], successors: Callable[[Key], Iterable[Key]]) -> KeysView[Key]:
    """
    Collect all nodes that can be reached from some nodes, these included; each is searched once.

    They have the order of a depth-first search that takes the last successor first.
    """
    found: dict[Key, None] = {}
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found[key] = None
            waiting += successors(key)
    return found.keys()
