"""TensorFlow's op types: which of them compute."""

from __future__ import annotations

import re

_CONSTANTS = {"Const", "HostConst", "_EagerConst", "FakeParam", "GuaranteeConst", "ImmutableConst"}
_COPIES = {
    "Identity", "IdentityN", "Snapshot", "StopGradient", "PreventGradient", "DeepCopy", "_HostIdentity", "RefIdentity", "_Send",
    "_Recv", "_HostSend", "_HostRecv", "_SyncDevice", "SyncDevice", "Copy", "CopyHost", "PlaceholderWithDefault",
}  # fmt: skip
_VARIABLES = {
    "VarHandleOp", "_VarHandlesOp", "Variable", "VariableV2", "ReadVariableOp", "_ReadVariablesOp", "AssignVariableOp", "Assign",
    "VarIsInitializedOp", "IsVariableInitialized", "DestroyResourceOp", "MutexV2", "DisableCopyOnRead",
}  # fmt: skip
_IDLE = frozenset(_CONSTANTS | _COPIES | _VARIABLES | {"NoOp", "ControlTrigger"})
_INPUT = re.compile(r"Iterator|Optional|Dataset")


def computes(op_type: str) -> bool:
    """
    Whether an op computes: it is no constant, no copy, no variable's handle, read or plain assignment, and fetches no input.

    What updates a variable computes (AssignAddVariableOp, ResourceApplyAdam).
    """
    return op_type not in _IDLE and not _INPUT.search(op_type)
