"""The op graph as the rules walk it: producers, consumers, and ops in between that move no data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pytest_tfperf.op_types import MATMULS
from pytest_tfperf.recorded_graphs import Dims, Edge, Ints, OpGraph, OpNode, Tensor

CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
CONVOLUTION_GRADIENTS = frozenset(
    {
        "Conv2DBackpropInput",
        "Conv2DBackpropFilter",
        "Conv3DBackpropInputV2",
        "Conv3DBackpropFilterV2",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    }
)
EINSUMS = frozenset({"Einsum", "XlaEinsum"})
PRODUCTS = MATMULS | CONVOLUTIONS | EINSUMS
IDENTITIES = frozenset(
    {"Identity", "StopGradient", "PreventGradient", "Snapshot", "ReadVariableOp"}
)
IN_PLACE = IDENTITIES | {"Cast", "BiasAdd", "BiasAddV1"}
"""Ops that pass on their first operand with every element in its place."""


Found = Iterator[tuple[int, str]]
"""Indices of ops that break a rule, each with a description."""


@dataclass(frozen=True, slots=True)
class Links:
    """A graph with the consumers of each op."""

    graph: OpGraph
    """The graph of the step."""
    consumers: tuple[tuple[tuple[int, int], ...], ...]
    """
    For each op its consumers: (index of the consumer, number of the operand).

    A result of the step has the consumer -1.
    """

    @classmethod
    def of(cls, graph: OpGraph) -> Links:
        """Link the ops of a graph."""
        found: list[list[tuple[int, int]]] = [[] for _ in graph.ops]
        for index, op in enumerate(graph.ops):
            for position, edge in enumerate(op.inputs):
                if edge is not None:
                    found[edge[0]].append((index, position))
        for edge in graph.results:
            found[edge[0]].append((-1, 0))
        return cls(graph, tuple(map(tuple, found)))

    def typed(self, types: Collection[str]) -> Iterator[tuple[int, OpNode]]:
        """Yield the ops of some types, with their indices."""
        return ((index, op) for index, op in enumerate(self.graph.ops) if op.op_type in types)

    def source(self, index: int, position: int = 0) -> int | None:
        """Return the index of the op that makes an operand."""
        inputs = self.graph.ops[index].inputs
        edge = inputs[position] if 0 <= position < len(inputs) else None
        return None if edge is None else edge[0]

    def tensor(self, edge: Edge | None) -> Tensor | None:
        """Return the result that an edge names."""
        return None if edge is None else self.graph.ops[edge[0]].outputs[edge[1]]

    def shape(self, index: int, position: int = 0) -> Dims | None:
        """Return the shape of an operand."""
        inputs = self.graph.ops[index].inputs
        tensor = self.tensor(inputs[position]) if 0 <= position < len(inputs) else None
        return None if tensor is None else tensor.shape

    def value(self, index: int, position: int) -> Ints | None:
        """Return the value of an operand that is a small constant."""
        source = self.source(index, position)
        while source is not None and self.graph.ops[source].op_type in IDENTITIES:
            source = self.source(source)
        return None if source is None else self.graph.ops[source].value

    def origin(
        self, index: int, position: int = 0, through: Collection[str] = IN_PLACE
    ) -> int | None:
        """
        Return the index of the op behind an operand, past ops of some types.

        Args:
            index: Index of the consumer.
            position: Number of the operand.
            through: Types of the ops to pass.
        """
        found = self.source(index, position)
        while found is not None and self.graph.ops[found].op_type in through:
            found = self.source(found)
        return found

    def users(self, index: int, through: Collection[str] = IN_PLACE) -> list[tuple[int, int]]:
        """
        Return the consumers behind an op, past ops of some types that take it as their first
        operand.
        """
        found, waiting, seen = [], list(self.consumers[index]), set()
        while waiting:
            user, position = waiting.pop()
            if user >= 0 and position == 0 and self.graph.ops[user].op_type in through:
                waiting += [] if user in seen else self.consumers[user]
                seen.add(user)
            else:
                found.append((user, position))
        return found


def result(op: OpNode) -> Dims | None:
    """Return the shape of an op's first result."""
    return op.outputs[0].shape if op.outputs else None


def dtype(op: OpNode) -> str:
    """Return the type of an op's first result."""
    return op.outputs[0].dtype if op.outputs else "?"


def shown(op: OpNode, shape: Dims | None) -> str:
    """Write the type of an op's result with a shape: `float32[8,?,64]`."""
    dims = "?" if shape is None else ",".join("?" if dim is None else str(dim) for dim in shape)
    return f"{dtype(op)}[{dims}]"


def at_least(shape: Dims | None) -> int:
    """Return the least number of elements of a shape; unknown sizes count as one."""
    total = 0 if shape is None else 1
    for dim in shape or ():
        total *= 1 if dim is None else dim
    return total


def all_users(links: Links, index: int, free: Callable[[int, int], bool]) -> bool:
    """
    Return whether an op has consumers and each of them satisfies `free`.

    Args:
        links: The graph.
        index: Index of the op.
        free: Predicate of a consumer's index and the number of its operand.
    """
    users = links.users(index)
    return bool(users) and all(user >= 0 and free(user, position) for user, position in users)
