"""Which nodes of a graph are ops that it runs, and how many of each type there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pytest_tfperf.compiler.definitions import called_by

ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "RemoteCall"})
CONTROL = frozenset(
    {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "Switch", "_SwitchN", "Merge", "Enter", "Exit"}
    | {"RefSwitch", "RefMerge", "RefEnter", "RefExit", "NextIteration", "RefNextIteration", "LoopCond", "NoOp", "ControlTrigger"}
)
"""The shells of loops and branches (tensorflow/core/ops/control_flow_ops.cc and functional_ops.cc)."""
_BODIES = CALLS | CONTROL


def is_op(op_type: str) -> bool:
    """Whether a node is an op that counts: no argument, result, call, or shell of control flow."""
    return op_type not in ARGUMENTS and op_type not in _BODIES


def count_ops(graph: Any) -> Counter[str]:
    """
    The ops of a GraphDef by type, with those of the functions that it calls, each as often as it is called in the graph, and the
    bodies of loops and branches once.
    """
    library = {definition.signature.name: definition.node_def for definition in graph.library.function}
    counts: dict[str, Counter[str]] = {}

    def of(nodes: Iterable[Any]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in nodes:
            if node.op in library:  # a call, as graphs of TensorFlow 1 have them
                found.update(of_function(node.op))
            elif is_op(node.op):
                found[node.op] += 1
            elif node.op in _BODIES:
                for name in called_by(node):
                    found.update(of_function(name))
        return found

    def of_function(name: str) -> Counter[str]:
        if name not in counts:
            counts[name] = Counter()  # for a function that calls itself
            counts[name] = of(library.get(name, ()))
        return counts[name]

    return of(graph.node)
