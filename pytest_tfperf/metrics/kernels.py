"""
Find the kernels that GPUs ran.

Their details are texts of `name:value` pairs. CUPTI writes `regs:32 static_shared:0
dynamic_shared:0 grid:16,1,1 block:512,1,1 occ_pct:50`, TensorFlow before 2.5 `shm:`, and ROCm
`group_mem:` for shared memory (openxla/xprof, kernel_stats_utils.cc; openxla/xla,
cupti_collector.cc and rocm_collector.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pytest_tfperf.facts.device_ops import gpu_kind
from pytest_tfperf.facts.op_times import (
    HLO_OP,
    Launcher,
    launchers,
    programs_of,
)
from pytest_tfperf.facts.steps import Steps, own_steps
from pytest_tfperf.hlo.products import product_units
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import BYTES, COUNT, SECONDS, SHARE
from pytest_tfperf.trace.devices import (
    TENSOR_CORES,
    TF32,
    compute_capability,
    gpus,
    stream_events,
)
from pytest_tfperf.trace.events import labels
from pytest_tfperf.trace.xspace import Plane, Trace
from pytest_tfperf.values import Column, Source, Table, Value

_PAIR = re.compile(r"([a-z_]+):([0-9.,]+)")
_SHARED = ("static_shared", "dynamic_shared", "shm", "group_mem")
_FILLS = re.compile(r"memset|FillBuffer|__amd_rocclr_fillBuffer", re.IGNORECASE)
NO_TENSOR_CORES, NO_TF32 = "no_tensor_cores", "no_tf32"
"""Details of tensor_core_time; true where a GPU has none, or multiplies no float32 on them."""
NO_GPU = "the trace has no GPU that did anything"
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
_REMEMBERED = 4096
"""Kernel names that are remembered: they are long, and every op that launches one asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel with one launch configuration, over all steps and GPUs."""

    name: str
    program: str = ""
    """XLA module of one that ran it, as `programs_of` names it; empty outside of XLA."""
    launches: int
    total_s: float
    """Seconds of all launches."""
    min_s: float
    max_s: float
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    """Per block."""
    grid: str = ""
    """Blocks of the grid, as the profiler writes them."""
    block: str = ""
    """Threads of a block, as the profiler writes them."""
    occupancy: float | None = None
    """Theoretical, from 0 to 1."""
    op: str = ""
    """The op for which it ran longest."""
    ops: frozenset[str] = frozenset()
    """The ops that launched it."""
    tensor_cores: bool = False
    eligible: bool = False
    """True if it multiplies matrices or convolves."""

    @property
    def configuration(self) -> tuple[object, ...]:
        """The launch configuration, as one text."""
        return self.grid, self.block, self.registers, self.shared_bytes, self.occupancy

    @property
    def mean_s(self) -> float:
        """Mean seconds of a launch."""
        return self.total_s / self.launches


def analyse(evidence: Evidence) -> Findings:
    """Find the kernels that GPUs ran, and the share of their time on tensor cores."""
    if evidence.trace is None:
        return evidence.untraced("tensor_core_time")
    parts = kernels_of_gpus(evidence.trace, evidence.steps)
    if any(is_generated(kernel.name) for kernel in parts):
        costs = evidence.costs
        units = product_units({name: found.products for name, found in costs.items()})
        known = [units.get((one.program, one.name), units.get(("", one.name))) for one in parts]
        parts = [
            one if fast is None else replace(one, tensor_cores=fast, eligible=True)
            for one, fast in zip(parts, known, strict=True)
        ]
    kernels = together(parts)
    tables = {"kernels": kernel_table(kernels, evidence.steps.n_steps)} if kernels else {}
    capabilities = [compute_capability(plane) for plane in gpus(evidence.trace)]
    capability = min((one for one in capabilities if one is not None), default=None)
    return Findings(
        values={"tensor_core_time": tensor_core_time(kernels, capability)}, tables=tables
    )


def is_kernel(name: str) -> bool:
    """Return whether a GPU event is a kernel of the program or a collective, no copy or fill."""
    return gpu_kind(name) in ("device_compute", "collective") and not _FILLS.match(name)


def kernels_of_gpus(trace: Trace, steps: Steps) -> list[Kernel]:
    """Return the kernels that each GPU started in the steps as the devices ran them."""
    return [kernel for plane in gpus(trace) for kernel in _kernels(plane, steps)]


def together(parts: Sequence[Kernel]) -> list[Kernel]:
    """Sum equal kernels of several GPUs, launchers and programs, the longest in total first."""
    found: dict[tuple[object, ...], Kernel] = {}
    for kernel in sorted(parts, key=lambda kernel: -kernel.total_s):
        key = (kernel.name, kernel.configuration, kernel.tensor_cores, kernel.eligible)
        found[key] = _sum(found[key], kernel) if key in found else kernel
    return sorted(found.values(), key=lambda kernel: -kernel.total_s)


def kernel_table(kernels: Sequence[Kernel], n_steps: int) -> Table:
    """Tabulate kernels by total time; launches and total are per step, over all GPUs."""
    return Table.of_each(
        "kernels",
        kernels,
        [
            (Column("kernel", "kernel"), lambda one: one.name),
            (Column("op", "op"), lambda one: one.op),
            (Column("ops", "ops", COUNT), lambda one: len(one.ops)),
            (Column("launches", "launches", COUNT), lambda one: one.launches / n_steps),
            (Column("total_s", "total", SECONDS), lambda one: one.total_s / n_steps),
            (Column("mean_s", "mean", SECONDS), lambda one: one.mean_s),
            (Column("min_s", "min", SECONDS), lambda one: one.min_s),
            (Column("max_s", "max", SECONDS), lambda one: one.max_s),
            (Column("registers", "registers", COUNT), lambda one: one.registers),
            (Column("shared_memory", "shared memory", BYTES), lambda one: one.shared_bytes),
            (Column("grid", "grid"), lambda one: one.grid),
            (Column("block", "block"), lambda one: one.block),
            (Column("occupancy", "occupancy", SHARE), lambda one: one.occupancy),
            (Column("tensor_cores", "tensor cores"), lambda one: one.tensor_cores),
        ],
    )


def tensor_core_time(kernels: Sequence[Kernel], capability: tuple[int, int] | None = None) -> Value:
    """Return the share of eligible kernel time on tensor cores; `capability` is the lowest."""
    if capability is not None and capability < TENSOR_CORES:
        why = f"a GPU of compute capability {capability[0]}.{capability[1]} has no tensor cores"
        return Value.unknown("tensor_core_time", why).changed(detail={NO_TENSOR_CORES: True})
    if not kernels:
        return Value.unknown("tensor_core_time", "no GPU ran a kernel in the steps")
    eligible = sum(kernel.total_s for kernel in kernels if kernel.eligible)
    if eligible <= 0:
        return Value.unknown(
            "tensor_core_time",
            "no kernel in the steps multiplies matrices or convolves, by its op or name",
        )
    used = sum(kernel.total_s for kernel in kernels if kernel.tensor_cores)
    without = [kernel.name for kernel in kernels if kernel.eligible and not kernel.tensor_cores][:3]
    return Value.of(
        "tensor_core_time",
        min(used / eligible, 1.0),
        Source.TRACE,
        without=without,
        eligible_share=min(eligible / sum(kernel.total_s for kernel in kernels), 1.0),
        **({NO_TF32: True} if capability is not None and capability < TF32 else {}),
    )


def _kernels(plane: Plane, steps: Steps) -> Iterator[Kernel]:
    """Group the events of one GPU by name, configuration and launcher."""
    events = stream_events(plane).named(is_kernel)
    events = events.where(own_steps(plane, steps).of(events.start) >= 0)
    detail, details = labels(events, "kernel_details")
    code, found = launchers(events)
    program, programs = programs_of(events)
    columns, sizes = (
        (plane.name_index[events.rows], detail, code, program),
        (len(plane.names), len(details), len(found), len(programs)),
    )
    keys, group = np.unique(np.ravel_multi_index(columns, sizes), return_inverse=True)
    group, duration = group.reshape(-1), (events.end - events.start) * 1e-12
    low, high = np.full(keys.size, np.inf), np.zeros(keys.size)
    np.minimum.at(low, group, duration)
    np.maximum.at(high, group, duration)
    launches, total = (
        np.bincount(group, minlength=keys.size),
        np.bincount(group, duration, keys.size),
    )
    for place, (index, text, key, ran) in enumerate(
        zip(*map(list, np.unravel_index(keys, sizes)), strict=True)
    ):
        name, launcher = plane.names[index], found[key]
        pairs = dict(_PAIR.findall(details[text]))
        shared = [int(pairs[key]) for key in _SHARED if pairs.get(key, "").isdecimal()]
        occupancy = float(pairs.get("occ_pct", 0)) / 100
        yield Kernel(
            name=name,
            program=programs[ran],
            launches=int(launches[place]),
            total_s=float(total[place]),
            min_s=float(low[place]),
            max_s=float(high[place]),
            registers=int(pairs["regs"]) if pairs.get("regs", "").isdecimal() else None,
            shared_bytes=sum(shared) if shared else None,
            grid=pairs.get("grid", ""),
            block=pairs.get("block", ""),
            # profilers that do not know it say 0
            occupancy=occupancy if 0 < occupancy <= 1 else None,
            op=launcher.name if launcher.source else "",
            ops=frozenset({launcher.name} if launcher.source else ()),
            tensor_cores=uses_tensor_cores(name),
            eligible=is_eligible(name, launcher),
        )


def _sum(one: Kernel, other: Kernel) -> Kernel:
    return replace(
        one,
        launches=one.launches + other.launches,
        total_s=one.total_s + other.total_s,
        min_s=min(one.min_s, other.min_s),
        max_s=max(one.max_s, other.max_s),
        ops=one.ops | other.ops,
    )


@lru_cache(_REMEMBERED)
def uses_tensor_cores(kernel: str) -> bool:
    """Return whether a kernel of this name runs on tensor cores."""
    return bool(_TENSOR_CORES.search(kernel)) and not _OTHER_UNITS.search(kernel)


def is_eligible(kernel: str, launcher: Launcher) -> bool:
    """
    Return whether a kernel multiplies matrices or convolves, by its name or launcher, as XProf
    does, but for kernels that only transpose the input of a convolution.
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
