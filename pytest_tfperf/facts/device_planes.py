"""
Find the activity of a trace's accelerators: GPU kernels and copies by name, TPU ops by category.

Names of copies come from CUPTI (`MemcpyH2D`, in older traces `MEMCPYHtoD`) and ROCm, names of
collectives from NCCL and RCCL. The categories of TPU ops are XLA's `hlo_category`. Lines that the
profiler derives from others are skipped: their ids start at 0xdeadbeef
(xla/tsl/profiler/utils/xplane_schema.h), stored as int32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_tfperf.trace.devices import GPU, accelerators, stream_events, tpu_ops
from pytest_tfperf.trace.events import metadata_texts
from pytest_tfperf.trace.intervals import EMPTY, Spans, merge
from pytest_tfperf.trace.xspace import Plane, Trace

_TO_DEVICE = re.compile(r"memcpy[ _]?h(ost)?to?2?d|MemcpyH2D", re.IGNORECASE)
_TO_HOST = re.compile(r"memcpy[ _]?d(evice)?to?2?h|MemcpyD2H", re.IGNORECASE)
# MemcpyOther is a copy of another direction, as between two kinds of host memory;
# __amd_rocclr_copyBuffer is the kernel with which ROCm copies between what a GPU can address
_ON_DEVICE = re.compile(
    r"memcpy[ _]?(dtod|d2d|p2p|ptop|other)|__amd_rocclr_copyBuffer", re.IGNORECASE
)
_COLLECTIVE = re.compile(r"(nccl|rccl)", re.IGNORECASE)
_TPU_KINDS: dict[str, Callable[[str], bool]] = {
    "input": lambda category: category == "infeed",
    "output": lambda category: category in ("outfeed", "host outfeed"),
    "collective": lambda category: category.startswith(
        ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
    ),
    "device_to_device": lambda category: category in ("send", "send-done", "recv", "recv-done"),
}
NO_CATEGORY = "the trace does not name the categories of the TPU's ops (hlo_category)"
KINDS = ("device_compute", "output", "device_to_device", "collective", "input")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceActivity:
    """Merged spans of all accelerators together; an instant may be in several kinds."""

    n_devices: int
    """Number of accelerators."""
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
    return lambda name: tpu_kind(category.get(name, ""))


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


def tpu_kind(category: str) -> str:
    """Return the kind of a TPU op, from its HLO category."""
    return next(
        (kind for kind, accepts in _TPU_KINDS.items() if accepts(category)), "device_compute"
    )
