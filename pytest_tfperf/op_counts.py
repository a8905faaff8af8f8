"""Which nodes of a graph are ops that it runs."""

from __future__ import annotations

ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "RemoteCall"})
CONTROL = frozenset(
    {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "Switch", "_SwitchN", "Merge", "Enter", "Exit"}
    | {"RefSwitch", "RefMerge", "RefEnter", "RefExit", "NextIteration", "RefNextIteration", "LoopCond", "NoOp", "ControlTrigger"}
)
"""The shells of loops and branches (tensorflow/core/ops/control_flow_ops.cc and functional_ops.cc)."""
_NO_OPS = ARGUMENTS | CALLS | CONTROL


def is_op(op_type: str) -> bool:
    """Whether a node is an op that counts: no argument, result, call, or shell of control flow."""
    return op_type not in _NO_OPS
