"""
Catalogues of TensorFlow's op types, and the reasons why XLA leaves an op out.

The names are those of tensorflow/core/ops/*.cc and, with a leading underscore, of ops that the
runtime adds (tensorflow/core/ops/function_ops.cc, sendrecv_ops.cc; tensorflow/compiler/jit/ops).
"""

from __future__ import annotations

import re

TEXT = "handles text, which XLA has no type for"
PYTHON = "a Python function"
NO_KERNEL = "XLA has no kernel for it"
DYNAMIC = "the size of its result is known only when it runs"
RANDOM = "draws random numbers from a hidden state"
EAGER = "run eagerly"
UNASKED = "XLA was not requested"
LEFT_OUT = "auto-clustering left it out: its cluster is too small, or would wait for itself"
WHY_OUTSIDE = (TEXT, PYTHON, NO_KERNEL, DYNAMIC, RANDOM, EAGER, LEFT_OUT, UNASKED)
"""Why an op is outside XLA; the reasons that no flag can change come first."""

HOST_SIDE, DATA_SIDE, GPU_SIDE, TPU_SIDE = "host", "tf.data", "GPU", "TPU"
"""Where the ops of a profile's table of ops run."""

FUNCTION_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Calls of a tf.function (functional_ops.cc)."""
CALLS = FUNCTION_CALLS | {"TPUPartitionedCall", "RemoteCall"}
LOOPS = frozenset({"While", "StatelessWhile"})
"""Functional loops; their cond and body are functions (functional_ops.cc)."""
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
"""Functional conditionals; their branches are functions (functional_ops.cc)."""
DATA_LOOPS = frozenset({"ScanDataset", "ReduceDataset"})
"""
Loops over a dataset within a graph, whose function `f` is the body (dataset_ops.cc).

AutoGraph makes them of `for … in dataset` (tensorflow/python/autograph/operators/control_flow.py).
"""
_LOWERED = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration"})
_NO_WORK = frozenset({"NoOp", "ControlTrigger"})
CONTROL = (
    LOOPS
    | BRANCHES
    | _LOWERED
    | {f"Ref{op_type}" for op_type in _LOWERED}
    | {"_SwitchN", "LoopCond"}
    | _NO_WORK
)
"""Control flow, functional and lowered (control_flow_ops.cc)."""

FUNCTION_ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
"""Arguments and results of an instantiated function (function_ops.cc)."""
ARGUMENTS = FUNCTION_ARGUMENTS | {"Placeholder"}
CONSTANTS = frozenset(
    {"Const", "HostConst", "_EagerConst", "FakeParam", "GuaranteeConst", "ImmutableConst"}
)
TRANSFERS = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})
"""Transfers between the partitions of a graph (sendrecv_ops.cc)."""
COPIES = TRANSFERS | {
    "Identity",
    "IdentityN",
    "Snapshot",
    "StopGradient",
    "PreventGradient",
    "DeepCopy",
    "_HostIdentity",
    "RefIdentity",
    "_SyncDevice",
    "SyncDevice",
    "Copy",
    "CopyHost",
    "PlaceholderWithDefault",
}
TRIVIAL = frozenset({"Const", "Identity", "IdentityN", "NoOp", "Placeholder"})
"""Ops of functions that compute nothing."""
VARIABLES = frozenset(
    {
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
)
"""Handles, reads and plain assignments of variables (resource_variable_ops.cc, state_ops.cc)."""

XLA_SHELLS = frozenset({"_XlaCompile", "_XlaRun", "_XlaMerge"})
"""Ops that compile and run an auto-cluster (tensorflow/compiler/jit/build_xla_ops_pass.cc)."""
PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""Ops that call a Python function (script_ops.cc)."""
MATMULS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
"""Products of dense matrices (math_ops.cc)."""
REDUCTIONS = frozenset({"Sum", "Mean", "Max", "Min", "Prod", "All", "Any"})
"""Reductions over given axes (math_ops.cc)."""
KEEPS_BATCHES = frozenset(
    {
        "Prefetch",
        "Cache",
        "MemoryCache",
        "MemoryCacheImpl",
        "FileCache",
        "Repeat",
        "ForeverRepeat",
        "FiniteRepeat",
        "Shuffle",
        "ShuffleAndRepeat",
        "Take",
        "FiniteTake",
        "Skip",
        "FiniteSkip",
        "Shard",
        "Options",
        "Model",
        "MaxIntraOpParallelism",
        "PrivateThreadPool",
        "AssertCardinality",
        "Generator",
    }
)
"""Stages of tf.data that keep the shape of an element (tensorflow/core/kernels/data)."""

_IDLE = CONSTANTS | COPIES | VARIABLES | _NO_WORK
_INPUT = re.compile(r"Iterator|Optional|Dataset")
_MATRIX_OPS = re.compile(r"MatMul|Conv|Einsum|CudnnRNN")
_WAITING = CALLS - {"TPUPartitionedCall"} | LOOPS | BRANCHES | {"SymbolicGradient", "NoOp"}
_RECEIVES = frozenset({"Recv", "HostRecv"})


def computes(op_type: str) -> bool:
    """
    Return whether an op computes.

    Constants, copies, handles, reads and plain assignments of variables, and ops that fetch input
    do not compute. Updates of variables do (AssignAddVariableOp, ResourceApplyAdam).
    """
    return op_type not in _IDLE and not _INPUT.search(op_type)


def is_input(op_type: str) -> bool:
    """Return whether an op fetches elements of a dataset."""
    return _INPUT.search(op_type) is not None


def is_op(op_type: str) -> bool:
    """Return whether a node counts as an op: not an argument, a result, a call or control flow."""
    return op_type not in ARGUMENTS | CALLS | CONTROL


def is_pipeline(op_type: str) -> bool:
    """Return whether an op makes a dataset, whose functions belong to the input pipeline."""
    return "Dataset" in op_type and op_type not in DATA_LOOPS


def multiplies_matrices(op_type: str) -> bool:
    """Return whether an op is a matrix multiplication, a convolution, or made of them."""
    return bool(_MATRIX_OPS.search(op_type))


def waits_for_others(op_type: str) -> bool:
    """Return whether the time of an op is the time of other ops, which it waits for or runs."""
    plain = op_type.removeprefix("_")
    return (
        plain in _WAITING
        or plain.removeprefix("_") in _RECEIVES
        or plain.startswith("IteratorGetNext")
    )


COLLECTIVES = ("CollectiveReduce", "CollectiveGather", "CollectiveAllToAll", "NcclAllReduce")
"""Starts of types of ops that communicate (tensorflow/core/ops/collective_ops.cc, nccl_ops.cc)."""
LONGEST_OP_S = 1e-4
"""Seconds that Python takes at most to run a small op eagerly: 5 to 40 µs on a quiet machine."""
