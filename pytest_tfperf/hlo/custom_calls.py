"""Tell what is known of custom calls: kernels and library calls whose work HLO does not show."""

from __future__ import annotations

import re

from pytest_tfperf.hlo.flops import matmul_flops
from pytest_tfperf.hlo.matmuls import Operands
from pytest_tfperf.hlo.module import HloInstruction, HloModule

_NO_FLOPS = frozenset(
    [
        "AllocateBuffer",
        "AssumeGatherIndicesInBound",
        "CreateBuffer",
        "GlobalToLocalShape",
        "LocalToGlobalShape",
        "MoveToDevice",
        "MoveToHost",
        "PadToStatic",
        "Pin",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "SliceToDynamic",
        "TopK",
        "Unpin",
        "X64Combine",
        "X64SplitHigh",
        "X64SplitLow",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "__cub$DeviceRadixSort",
        "__cub$DeviceRadixSortUnassignedScratchSize",
        "__gpu$TopK",
        "cu_threefry2x32",
        "cu_threefry2x32_ffi",
        "hip_threefry2x32",
        "hip_threefry2x32_ffi",
    ]
)
"""
Targets that only mark, move, select or sort (openxla/xla: host_memory_offload_annotations.h, the
SPMD partitioner, Shardy's constants, dynamic_padder.cc, cublas_cudnn.h), or that compute with
integers alone: JAX's random numbers on GPUs (jax/_src/prng.py).
"""
_OF_PYTHON = re.compile(r"xla_(ffi_(partitioned_)?)?python_(cpu|gpu)_callback")
"""
Targets that call Python with arrays of the host, whose work is not the program's: pure_callback,
io_callback and jax.debug (jax/_src/callback.py; the first form in older versions). buffer_callback
gets the device's memory, mostly to run another library's kernel on it, so its work is unknown.
"""


def declared_flops(op: HloInstruction) -> int | None:
    """
    Return the FLOPs that the author of a kernel declared; None without a declaration.

    Source: `cost_estimate` of Pallas' kernels for TPUs (jax/_src/tpu_custom_call.py); a compiler
    that rewrites the configuration writes the number as text. Triton's kernels, Transformer Engine
    and cuDNN declare none.
    """
    call = op.config.get("custom_call_config")
    cost = call.get("cost_estimate") if isinstance(call, dict) else None
    text = str(cost.get("flops", "")) if isinstance(cost, dict) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def hides_flops(op: HloInstruction, operands: Operands) -> bool:
    """Return whether an instruction is a custom call whose FLOPs are unknown."""
    return (
        op.opcode == "custom-call"
        and not _is_free(op.custom_call_target)
        and matmul_flops(op, operands) is None
        and declared_flops(op) is None
    )


def hides_products(op: HloInstruction, operands: Operands) -> bool:
    """
    Return whether an instruction is a custom call that may multiply matrices of unknown types.

    Declared FLOPs do not say which types they have, unless there are none.
    """
    return (
        op.opcode == "custom-call"
        and not _is_free(op.custom_call_target)
        and matmul_flops(op, operands) is None
        and declared_flops(op) != 0
    )


def _is_free(target: str) -> bool:
    return target in _NO_FLOPS or _OF_PYTHON.fullmatch(target) is not None


def hidden_computations(module: HloModule) -> set[int]:
    """Return the ids of computations with unknown FLOPs, their own or those of what they call."""
    unknown: set[int] = set()
    for part in module.computations.values():  # callees come before their callers
        if any(
            hides_flops(op, part.operands(op)) or not unknown.isdisjoint(op.called)
            for op in part.instructions.values()
        ):
            unknown.add(part.id)
    return unknown
