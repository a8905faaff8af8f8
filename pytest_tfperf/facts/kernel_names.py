"""
Classify GPU kernels by name: tensor cores (AMD: matrix cores), eligibility, 16-bit operands.

No profiler records the units that a kernel uses. NVIDIA's names come from XProf's list
(openxla/xprof, kernel_stats_utils.cc, IsKernelUsingTensorCore), extended by newer ones: cuBLAS'
`nvjet`, `sm90_` and `sm100_` kernels, CUTLASS' `tensorop` and `gmma` kernels, the instruction
shapes in mma kernels (`h16816`), and fused attention. AMD's names are Tensile's `MI16x16x16` and
similar ones.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stats import labels

_REMEMBERED = 4096
"""Kernel names that are remembered: they are long, and every op that launches one asks again."""
_NVIDIA_NAMES = (
    "16816",
    "c1688",
    "conv1x1",
    "conv2d_c1_k1",
    "dgrad_1x1_stride_2x2",
    "direct_group",
    "first_layer_wgrad_kernel",
    "h1688",
    "h884",
    "hmma",
    "i16832",
    "i8816",
    "s884",
    "s1688",
    "xmma_gemm",
    "xmma_implicit_gemm",
    "xmma_sparse_conv",
    "xmma_sparse_gemm",
    "xmma_warp_specialized_implicit_gemm",
)
_LATER_NAMES = (
    r"nvjet_",
    r"tensorop",
    r"tensor\d+x\d+x\d+",
    r"(^|_)(w?gmma|tcgen05|utcmma|umma)",
    r"sm(90|100|103|120)_xmma",
    r"cutlass3x_sm(90|100|103|120)",
    r"fmha|flash_(fwd|bwd)|flash_attn|flash_attention|cudnn_generated_fort_native_sdpa",
)
_AMD_NAMES = (r"_MI(\d+x){2,3}\d+", r"MFMA")
_TENSOR_CORES = re.compile(
    "|".join([*map(re.escape, _NVIDIA_NAMES), *_LATER_NAMES, *_AMD_NAMES]), re.IGNORECASE
)
# cuBLAS (`_ffma_`), CUTLASS and Tensile have kernels for the other units too
_OTHER_UNITS = re.compile(r"_[dfh]fma2?_|cutlass.*simt|_MI(0x){2,3}0", re.IGNORECASE)
# XProf's TensorFlow ops that can use them (openxla/xprof, kernel_stats_utils.cc,
# IsOpTensorCoreEligible), einsums, and JAX's primitives
_ELIGIBLE_OPS = re.compile(
    r"(Conv[23]D(Backprop(Filter|Input)(V2)?)?|DepthwiseConv2dNative(Backprop(Filter|Input))?|_?(Fused|Mkl|Xla|Batch|Sparse)*MatMul(V[23])?"
    r"|_FusedConv2D|(Xla)?Einsum|CudnnRNN.*|Xla(Dot|Conv)(V2)?|dot_general|conv_general_dilated)\Z"
)
_ELIGIBLE_HLO = re.compile(
    r"(^|[_\-$])(dot|gemm|convolution|conv|fmha|flash|cublas|matmul)(?![a-z])", re.IGNORECASE
)
_ELIGIBLE_KERNELS = re.compile(
    r"gemm|gemv|[sh]cudnn_|conv(?!ert|ersion)|fprop|dgrad|wgrad|winograd|im\dd?2col|Cijk_|matmul",
    re.IGNORECASE,
)
# kernels that TensorFlow and cuBLAS run before and after a product: transposes, partial sums
_PREPARES = re.compile(
    r"TensorShufflingOp|SwapDimension|ShuffleInTensor|splitK?reduce|_transpose", re.IGNORECASE
)
_HALF = re.compile(
    r"half|fp16|fp8|bf16|float16|(?<![a-z])f16|e4m3|e5m2|(^|[_.])h(884|1688|16816)|(^|_)hgemm|hmma|nvjet_(sm\d+_)?[htq]"
    r"|_(HHS|HSS|HH|BBS|BSS|BB)_(BH_|HPA|MT)"
)


@lru_cache(_REMEMBERED)
def uses_tensor_cores(kernel: str) -> bool:
    """Return whether a kernel of this name runs on tensor cores."""
    return bool(_TENSOR_CORES.search(kernel)) and not _OTHER_UNITS.search(kernel)


def is_eligible(kernel: str, launcher: Launcher) -> bool:
    """
    Return whether a kernel multiplies matrices or convolves, and so could run on tensor cores.

    Its own name decides, or the XLA instruction or op type that launched it. XProf calls every
    kernel eligible whose source is a convolution, also one that only transposes its input.
    """
    if uses_tensor_cores(kernel) or _multiplies(kernel):
        return True
    if _PREPARES.search(kernel):
        return False
    if launcher.source == HLO_OP:
        return bool(_ELIGIBLE_HLO.search(launcher.name))
    return bool(_ELIGIBLE_OPS.match(launcher.kind))


@lru_cache(_REMEMBERED)
def _multiplies(kernel: str) -> bool:
    return bool(_ELIGIBLE_KERNELS.search(kernel))


def is_generated(kernel: str) -> bool:
    """Return whether XLA generated a kernel of this name for a fusion, which may multiply."""
    return "fusion" in kernel


def half_operands(shapes: str) -> bool | None:
    """
    Return whether an op's operands have 16-bit types, or None without shapes.

    TensorFlow annotates shapes as `(half[4,1];int32)`.
    """
    return ("half" in shapes or "bf16" in shapes or "bfloat16" in shapes) if shapes else None


@lru_cache(_REMEMBERED)
def half_by_name(kernel: str) -> bool:
    """Return whether a kernel's name states numbers of 16 bits or fewer."""
    return bool(_HALF.search(kernel))


_NUMBERED = re.compile(r"([._]\d+)+\Z")


HLO_OP = "hlo_op"


_NO_ID = -1


_SOURCES = (
    "annotation",
    "tf_op",
    HLO_OP,
)  # the last that is there holds; before TensorFlow 2.5 the op is in the annotation


class Launcher(NamedTuple):
    """The instruction or op that launched a kernel."""

    name: str
    """Name of the instruction or op."""
    kind: str
    """Opcode or op type."""
    source: str
    """Stat that names it; empty if `name` is the event's own."""


def launchers(events: Events) -> tuple[Ints, list[Launcher]]:
    """Return the launcher index of each event, shape (n,), and all launchers."""
    code, found = (
        events.plane.name_index[events.rows],
        [Launcher(name, "", "") for name in events.plane.names],
    )
    for stat in _SOURCES:
        which, texts = labels(events, stat)
        named = np.array([_names_an_op(text) for text in texts], bool)
        code = np.where(named[which], which + len(found), code)
        found += [_launcher(text, stat) for text in texts]
    return code, found


def programs_of(events: Events) -> tuple[Ints, list[str]]:
    """
    Return an index into the names of programs for each event, shape (n,), and the names.

    They are `module(program id)`, `module` where the trace has no id, and empty outside of XLA.
    """
    module, modules = labels(events, "hlo_module")
    ids, which = distinct(np.where(module > 0, events.integers("program_id", _NO_ID), _NO_ID))
    pairs, code = distinct(module * ids.size + which)
    names = [(modules[pair // ids.size], int(ids[pair % ids.size])) for pair in pairs.tolist()]
    return code, [name if number == _NO_ID else f"{name}({number})" for name, number in names]


def _names_an_op(text: str) -> bool:
    """
    Return whether a text names an op: an empty type, as in `XlaModule:`, only states that XLA ran.

    Kernels of a CUDA graph all have the graph's name, `command_buffer`.
    """
    return bool(text.partition("#")[0]) and not text.startswith(("XlaModule:", "command_buffer"))


def _launcher(text: str, source: str) -> Launcher:
    """
    Parse `node:Type#shape=…#` or, from JAX, `jit(f)/dot_general:`.

    The kind of an instruction is its name without numbers.
    """
    if source == HLO_OP:
        return Launcher(text, _NUMBERED.sub("", text), source)
    name, _, kind = text.partition("#")[0].partition("::")[0].rpartition(":")
    name = name or kind
    return Launcher(name, kind or _NUMBERED.sub("", name.rpartition("/")[2]), source)
