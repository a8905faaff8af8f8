"""
The ops that GPUs and TPUs ran, and what the names of GPU kernels tell of them: tensor cores (AMD:
matrix cores), eligibility, 16-bit operands.

No profiler records the units that a kernel uses. NVIDIA's names come from XProf's list
(openxla/xprof, kernel_stats_utils.cc, IsKernelUsingTensorCore), extended by newer ones: cuBLAS'
`nvjet`, `sm90_` and `sm100_` kernels, CUTLASS' `tensorop` and `gmma` kernels, the instruction
shapes in mma kernels (`h16816`), and fused attention. AMD's names are Tensile's `MI16x16x16` and
similar ones.

Names of copies come from CUPTI (`MemcpyH2D`, in older traces `MEMCPYHtoD`) and ROCm (the same, or
`CopyHostToDevice`), names of collectives from NCCL and RCCL. The categories of TPU ops are XLA's
`hlo_category`. Lines that the profiler derives from others are skipped: their ids start at
0xdeadbeef (xla/tsl/profiler/utils/xplane_schema.h), stored as int32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_tfperf.facts.host_activity import eager_executions
from pytest_tfperf.facts.op_times import (
    OpTime,
    launchers,
    new_op,
    programs_of,
    summed,
)
from pytest_tfperf.facts.steps import Steps, own_steps
from pytest_tfperf.hlo.cost import Costs, OpCost
from pytest_tfperf.hlo.products import kernel_of
from pytest_tfperf.op_types import GPU_SIDE, TPU_SIDE
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import GPU, accelerators, gpus, stream_events, tpu_ops, tpus
from pytest_tfperf.trace.events import Events, enclosing, metadata_texts
from pytest_tfperf.trace.intervals import EMPTY, Spans, merge
from pytest_tfperf.trace.xspace import HOST, Plane, Trace

_TO_DEVICE = re.compile(r"(memcpy|copy)[ _]?h(ost)?(to|2)d", re.IGNORECASE)
_TO_HOST = re.compile(r"(memcpy|copy)[ _]?d(evice)?(to|2)h", re.IGNORECASE)
# MemcpyOther is a copy of another direction, as between two kinds of host memory;
# __amd_rocclr_copyBuffer is the kernel with which ROCm copies between what a GPU can address
_ON_DEVICE = re.compile(
    r"memcpy[ _]?(dtod|d2d|p2p|ptop|other)|Copy(Device|Host)To(Device|Host)"
    r"|__amd_rocclr_copyBuffer",
    re.IGNORECASE,
)
_COLLECTIVE = re.compile(r"(nccl|rccl)", re.IGNORECASE)
_TPU_KINDS: dict[str, Callable[[str], bool]] = {
    "input": lambda category: category == "infeed",
    "output": lambda category: category in ("outfeed", "host outfeed"),
    "collective": lambda category: category.startswith(
        (
            "all-reduce",
            "all-gather",
            "all-to-all",
            "ragged-all-to-all",
            "reduce-scatter",
            "collective-permute",
            "collective-broadcast",
        )
    ),
    "device_to_device": lambda category: category in ("send", "send-done", "recv", "recv-done"),
}
_ASYNC_COLLECTIVE = ("async-collective-start", "async-collective-done")
"""Names of fusions, as their category says, in which XLA starts and awaits collectives of TPUs."""
NO_CATEGORY = "the trace does not name the categories of the TPU's ops (hlo_category)"
KINDS = ("device_compute", "output", "device_to_device", "collective", "input")
_MOVES = {
    "input": "copy to device",
    "output": "copy to host",
    "device_to_device": "copy on device",
    "collective": "collective",
}
_INSTRUCTION = re.compile(r"%?([^\s=]+) = ")
_PROGRAM = re.compile(r"\((\d+)\)\Z")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceActivity:
    """Merged spans of all accelerators together; an instant may be in several kinds."""

    n_devices: int
    spans: dict[str, Spans]
    """Merged spans by kind (`KINDS`)."""
    names_kinds: bool = True
    """False if a TPU's ops have no category, so that they all pass for compute."""
    each: tuple[dict[str, Spans], ...] = ()
    """The same of each accelerator alone."""

    @property
    def busy(self) -> Spans:
        """Merged spans of any activity."""
        return merge(*self.spans.values())


def find_device_activity(trace: Trace) -> DeviceActivity:
    """Find the activity of a host's GPUs and TPUs; it is empty without them."""
    planes = accelerators(trace)
    each = tuple({kind: merge(spans) for kind, spans in kinds_of_spans(plane)} for plane in planes)
    return DeviceActivity(
        len(planes),
        {kind: merge(EMPTY, *(spans[kind] for spans in each)) for kind in KINDS},
        all(map(names_kinds, planes)),
        each,
    )


def names_kinds(plane: Plane) -> bool:
    """Return whether the kinds of an accelerator's events show: a TPU's need the HLO category."""
    return bool(GPU.match(plane.name)) or bool(metadata_texts(plane, "hlo_category"))


def kinds_of_spans(plane: Plane) -> Iterator[tuple[str, Spans]]:
    """Yield each kind of `KINDS` with the unmerged spans of one accelerator."""
    events, kind_of = (
        stream_events(plane) if GPU.match(plane.name) else tpu_ops(plane),
        kinds_by_name(plane),
    )
    for kind in KINDS:
        yield kind, events.named(lambda name, kind=kind: kind_of(name) == kind).spans  # type: ignore[misc]


def kinds_by_name(plane: Plane) -> Callable[[str], str]:
    """Return the function from an event's name to its kind; on a TPU it uses the HLO category."""
    if GPU.match(plane.name):
        return gpu_kind
    category = metadata_texts(plane, "hlo_category")
    return lambda name: tpu_kind(category.get(name, ""), instruction(name))


def gpu_kind(name: str) -> str:
    """Return the kind of a GPU event, from its name."""
    for kind, pattern in (
        ("input", _TO_DEVICE),
        ("output", _TO_HOST),
        ("device_to_device", _ON_DEVICE),
    ):
        if pattern.match(name):
            return kind
    return "collective" if _COLLECTIVE.match(name) else "device_compute"


def tpu_kind(category: str, name: str = "") -> str:
    """Return the kind of a TPU op, from its HLO category and the name of its instruction."""
    if name.startswith(_ASYNC_COLLECTIVE):
        return "collective"
    return next(
        (kind for kind, accepts in _TPU_KINDS.items() if accepts(category)), "device_compute"
    )


def device_ops(trace: Trace, steps: Steps) -> list[OpTime]:
    """Measure the ops of a host's GPUs and TPUs, all together, in the steps as these ran them."""
    eager = _eager_launches(trace) if gpus(trace) else np.empty(0, np.int64)
    of_gpus = [op for plane in gpus(trace) for op in _gpu_ops(plane, eager, steps)]
    return _together([*of_gpus, *(op for plane in tpus(trace) for op in _tpu_ops(plane, steps))])


def with_costs(ops: Sequence[OpTime], modules: Mapping[str, Costs]) -> list[OpTime]:
    """
    Add FLOPs, bytes and opcode to ops that are XLA instructions or have the names of their kernels,
    where all programs agree that may have run them; `modules` have names with or without an id.
    """
    costs: dict[tuple[str, str], list[OpCost]] = {}
    for module, found in modules.items():
        for cost in found.ops:
            for program in {module, module.partition("(")[0]}:
                for name in {cost.name, kernel_of(cost.name)}:
                    costs.setdefault((program, name), []).append(cost)
    return [_with_cost(op, _agreed(costs.get((op.module, op.name), ()))) for op in ops]


def _agreed(costs: Sequence[OpCost]) -> OpCost | None:
    different = {(cost.opcode, cost.work, cost.bytes, cost.counted) for cost in costs}
    return costs[0] if len(different) == 1 else None


def kind_of_op(op: OpTime) -> str:
    """Return the kind of `KINDS` that an op of an accelerator is of."""
    if op.side == TPU_SIDE:
        return tpu_kind(op.kind, op.name)
    return next((kind for kind, move in _MOVES.items() if op.kind == move), "device_compute")


def _eager_launches(trace: Trace) -> Ints:
    """Return the correlation ids of launches by eager ops."""
    host = Events.of(trace.plane(HOST))
    eager = eager_executions(host)
    if not len(eager):
        return np.empty(0, np.int64)
    calls = host.having("correlation_id")
    return calls.where(enclosing(eager, calls) >= 0).integers("correlation_id")


def _gpu_ops(plane: Plane, eager_launches: Ints, steps: Steps) -> list[OpTime]:
    """Measure kernels by the op that launched them, else by name; other work by name."""
    events, steps = stream_events(plane), own_steps(plane, steps)
    moves = np.isin(events.rows, events.named(lambda name: gpu_kind(name) in _MOVES).rows)
    code, found = launchers(events)
    code = np.where(moves, plane.name_index[events.rows], code)
    module, modules = programs_of(events)
    eager = (events.integers("is_eager") != 0) | np.isin(
        events.integers("correlation_id", -1), eager_launches
    )

    def op(key: int) -> OpTime:
        launcher, in_module = found[key // len(modules)], modules[key % len(modules)]
        kind = launcher.kind if launcher.source else _MOVES.get(gpu_kind(launcher.name), "kernel")
        return new_op(GPU_SIDE, launcher.name, kind, in_module)

    key = code * len(modules) + module
    inside = steps.of(events.start) >= 0
    pairs = np.unique(np.array([key[inside], plane.name_index[events.rows][inside]]), axis=1)
    different = np.unique(pairs[0], return_counts=True)[1].tolist()
    return [
        replace(one, kernels=n)
        for one, n in zip(summed(events, events, key, eager, steps, op), different, strict=True)
    ]


def modules_by_id(plane: Plane) -> dict[str, str]:
    """Return the names of the modules that a TPU core ran, by the program ids in them."""
    return {match[1]: name for name in plane.names if (match := _PROGRAM.search(name))}


def _tpu_ops(plane: Plane, steps: Steps) -> list[OpTime]:
    """Measure a TPU core's ops by instruction, with FLOPs and bytes of the event's metadata."""
    events, steps = tpu_ops(plane), own_steps(plane, steps)
    timed = on_device_clock(events)
    category, program = metadata_texts(plane, "hlo_category"), metadata_texts(plane, "program_id")
    costs = {stat: metadata_texts(plane, stat) for stat in ("flops", "bytes_accessed")}
    modules = modules_by_id(plane)

    def op(key: int) -> OpTime:
        name = plane.names[key]
        return new_op(
            TPU_SIDE,
            instruction(name),
            category.get(name, ""),
            modules.get(program.get(name, ""), ""),
        )

    names = plane.name_index[events.rows]
    ops = summed(events, timed, names, np.zeros(len(events), bool), steps, op)
    keys = np.unique(names[steps.of(events.start) >= 0]).tolist()
    return [
        replace(
            op,
            flops=_told(_cost(costs["flops"].get(plane.names[key]), op.count), op.kind),
            bytes=_cost(costs["bytes_accessed"].get(plane.names[key]), op.count),
        )
        for key, op in zip(keys, ops, strict=True)
    ]


def on_device_clock(events: Events) -> Events:
    """
    Return the events on the TPU's own clock, if all have its times, since single ops are off by up
    to half on the fitted clock of the trace (GetDeviceEventTimespan of openxla/xla,
    xplane_utils.cc).
    """
    start, duration = (
        events.integers("device_offset_ps", -1),
        events.integers("device_duration_ps", -1),
    )
    if not len(events) or start.min() < 0 or duration.min() < 0:
        return events
    starts, durations = events.plane.start_ps.copy(), events.plane.duration_ps.copy()
    starts[events.rows], durations[events.rows] = start, duration
    return Events(replace(events.plane, start_ps=starts, duration_ps=durations), events.rows)


def instruction(text: str) -> str:
    """
    Return the instruction's name in its HLO text: `%add.1 = f32[] add(…)` → `add.1`; other text
    unchanged.
    """
    match = _INSTRUCTION.match(text)
    return match[1] if match else text


def _cost(text: str | None, count: int) -> float | None:
    """Return FLOPs or bytes of `count` runs, or None without a valid number."""
    try:
        cost = float(text or "nan") * count
    except ValueError:
        return None
    return cost if 0 <= cost < math.inf else None


def _told(flops: float | None, kind: str) -> float | None:
    """Return None for a custom call of 0 FLOPs: the compiler knows only what a kernel declares."""
    return flops if flops or not kind.startswith("custom-call") else None


def _with_cost(op: OpTime, cost: OpCost | None) -> OpTime:
    if cost is None or op.flops is not None:
        return op
    runs = op.count / op.kernels
    flops = cost.work.flops * runs if cost.counted else None
    return replace(op, kind=cost.opcode, flops=flops, bytes=cost.bytes * runs)


def _together(ops: Iterable[OpTime]) -> list[OpTime]:
    """Add up ops of several devices that share name and module."""
    found: dict[tuple[str, ...], OpTime] = {}
    for op in ops:
        key = (op.side, op.module, op.name, op.kind)
        found[key] = _sum(found[key], op) if key in found else op
    return list(found.values())


def _sum(one: OpTime, other: OpTime) -> OpTime:
    return replace(
        one,
        count=one.count + other.count,
        total_s=one.total_s + other.total_s,
        self_s=one.self_s + other.self_s,
        eager_s=one.eager_s + other.eager_s,
        flops=None if one.flops is None or other.flops is None else one.flops + other.flops,
        bytes=None if one.bytes is None or other.bytes is None else one.bytes + other.bytes,
    )
