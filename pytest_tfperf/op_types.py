"""TensorFlow's op types: which of them compute; and why XLA does not compile some."""

from __future__ import annotations

import re

TEXT = "handles text, which XLA has no type for"
PYTHON = "a Python function"
NO_KERNEL = "XLA has no kernel for it"
DYNAMIC = "how large its result is shows only when it runs"
RANDOM = "draws random numbers from a hidden state"
EAGER = "run eagerly"
FELL_BACK = (
    "its cluster did not run: TensorFlow fell back to single ops, as after a change of shapes"
)
UNASKED = "nobody asked for XLA"
LEFT_OUT = "auto-clustering left it out: too small a cluster, or one that would wait for itself"
WHY_OUTSIDE = (TEXT, PYTHON, NO_KERNEL, DYNAMIC, RANDOM, EAGER, FELL_BACK, LEFT_OUT, UNASKED)
"""Why an op is outside XLA: what it cannot compile first."""

_CONSTANTS = {"Const", "HostConst", "_EagerConst", "FakeParam", "GuaranteeConst", "ImmutableConst"}
_COPIES = {
    "Identity",
    "IdentityN",
    "Snapshot",
    "StopGradient",
    "PreventGradient",
    "DeepCopy",
    "_HostIdentity",
    "RefIdentity",
    "_Send",
    "_Recv",
    "_HostSend",
    "_HostRecv",
    "_SyncDevice",
    "SyncDevice",
    "Copy",
    "CopyHost",
    "PlaceholderWithDefault",
}
_VARIABLES = {
    "VarHandleOp",
    "_VarHandlesOp",
    "Variable",
    "VariableV2",
    "ReadVariableOp",
    "_ReadVariablesOp",
    "AssignVariableOp",
    "Assign",
    "VarIsInitializedOp",
    "IsVariableInitialized",
    "DestroyResourceOp",
    "MutexV2",
    "DisableCopyOnRead",
}
_IDLE = frozenset(_CONSTANTS | _COPIES | _VARIABLES | {"NoOp", "ControlTrigger"})
_INPUT = re.compile(r"Iterator|Optional|Dataset")


def computes(op_type: str) -> bool:
    """
    Whether an op computes: it is no constant, no copy, no variable's handle, read or plain assignment, and fetches no input.

    What updates a variable computes (AssignAddVariableOp, ResourceApplyAdam).
    """
    return op_type not in _IDLE and not _INPUT.search(op_type)


ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"})


CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "RemoteCall"}
)


CONTROL = frozenset(
    {
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
        "Switch",
        "_SwitchN",
        "Merge",
        "Enter",
        "Exit",
    }
    | {
        "RefSwitch",
        "RefMerge",
        "RefEnter",
        "RefExit",
        "NextIteration",
        "RefNextIteration",
        "LoopCond",
        "NoOp",
        "ControlTrigger",
    }
)


_NO_OPS = ARGUMENTS | CALLS | CONTROL


def is_op(op_type: str) -> bool:
    """Whether a node is an op that counts: no argument, result, call, or shell of control flow."""
    return op_type not in _NO_OPS
