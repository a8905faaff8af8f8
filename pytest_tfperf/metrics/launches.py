"""Count the kernels that a step launches, and its copies between host and device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pytest_tfperf.facts.device_planes import gpu_kind
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.on_devices import linked_kernels, on_the_device, own_steps
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.metrics.counts import per_step
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.jax_transfers import BYTES, COPIES, jax_transfers, transfer_cause
from pytest_tfperf.metrics.kernels import NO_GPU, is_kernel
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import accelerators, gpus, stream_events, tpu_ops, tpus
from pytest_tfperf.trace.events import Events, joined, labels, metadata_texts
from pytest_tfperf.trace.xspace import HOST, Plane, Trace
from pytest_tfperf.values import Value

_OF_THE_HOST = frozenset(
    {"tfperf", "step_num", "iterations", "function"}
)  # sources of steps that hold the launches of their work
_COPY_KERNEL = "__amd_rocclr_copyBuffer"
_SIZE = re.compile(r"(?:^|\s)(?:size|num_bytes):(\d+)")
_HOST_SPACE = "S(5)"
_NO_DEVICE = "the trace has no GPU or TPU that did anything"
_NO_TRANSFER = (
    "the trace of a TPU shows infeed, outfeed and copies from and to host memory within a "
    "program; this one has none of them, and what "
    "the host sends between programs is not recorded"
)


def analyse(evidence: Evidence) -> Findings:
    """Find the kernels that a step launches, and its copies between host and device."""
    trace, steps = evidence.trace, evidence.launched if evidence.trace else None
    if trace is None or steps is None:
        return evidence.untraced("kernel_launches", COPIES, BYTES)
    launches = kernel_launches(trace, steps)
    is_jax = evidence.framework == JAX
    if is_jax and not accelerators(trace):
        return Findings(values={"kernel_launches": launches, **jax_transfers(evidence, trace)})
    copied = copy_values(trace, steps)
    if is_jax and copied[COPIES].number is not None and copied[COPIES].high():
        cause = transfer_cause(evidence, trace)
        copied[COPIES] = replace(copied[COPIES], detail={**copied[COPIES].detail, **cause})
    return Findings(values={"kernel_launches": launches, **copied})


def kernel_launches(trace: Trace, steps: Steps) -> Value:
    """
    Count the kernels of a step on all GPUs.

    A kernel belongs to the step in which the host launched it, else to that in which the device
    started it.

    Args:
        trace: The trace of the steps.
        steps: The steps of the host, if it has any.
    """
    if not any(len(stream_events(plane)) for plane in gpus(trace)):
        return Value.unknown("kernel_launches", NO_GPU)
    counts = [steps.counts(step) for _, step in _placed(trace, steps, is_kernel)]
    return per_step("kernel_launches", sum(counts, np.zeros(len(steps), np.int64)), steps.sizes)


def copy_values(trace: Trace, steps: Steps) -> dict[str, Value]:
    """
    Return host_device_copies and host_device_bytes of a step, in both directions on all devices.

    Args:
        trace: The trace of the steps.
        steps: The steps of the host, if it has any.
    """
    if not accelerators(trace):
        return {name: Value.unknown(name, _NO_DEVICE) for name in (COPIES, BYTES)}
    found = [*_gpu_copies(trace, steps), *(_tpu_copies(plane, steps) for plane in tpus(trace))]
    if gpus(trace) and not any(len(stream_events(plane)) for plane in gpus(trace)):
        return {name: Value.unknown(name, NO_GPU) for name in (COPIES, BYTES)}
    if n := _undirected(trace, steps):
        why = f"the trace does not say between what {n} copies by kernels of ROCm ran"
        return {name: Value.unknown(name, why) for name in (COPIES, BYTES)}
    if not gpus(trace) and not sum(step.size for step, _ in found):
        return {name: Value.unknown(name, _NO_TRANSFER) for name in (COPIES, BYTES)}
    counts = sum((steps.counts(step) for step, _ in found), np.zeros(len(steps), np.int64))
    unsized = sum(int((size[step >= 0] < 0).sum()) for step, size in found)
    if unsized:
        size = Value.unknown(
            BYTES, f"the trace does not say how large {unsized} of {int(counts.sum())} copies are"
        )
    else:
        size = per_step(
            BYTES,
            sum((_sums(*copied, steps) for copied in found), np.zeros(len(steps), np.int64)),
            steps.sizes,
        )
    return {COPIES: per_step(COPIES, counts, steps.sizes), BYTES: size}


def _placed(
    trace: Trace, steps: Steps, accept: Callable[[str], bool]
) -> Iterator[tuple[Events, Ints]]:
    """
    Return, for each GPU, the events of accepted names and their steps.

    The step is the one that launched the event if the trace shows it, else the one that the device
    ran then.
    """
    if steps.source in _OF_THE_HOST:
        ran = on_the_device(trace, steps)
        ran = ran if len(ran) == len(steps) else steps
        work = (
            (events, np.where(step >= 0, step, ran.of(events.start)))
            for events, step in linked_kernels(trace, steps)
        )
    else:
        work = (
            (events, own_steps(events.plane, steps).of(events.start))
            for events in map(stream_events, gpus(trace))
        )
    for events, step in work:
        step = step if (step >= 0).any() else steps.of(events.start)
        wanted = np.isin(events.rows, events.named(accept).rows)
        yield events.where(wanted), step[wanted]


def _undirected(trace: Trace, steps: Steps) -> int:
    """
    Count the copies by kernels in the steps, whose launch does not say that they stay on devices.

    ROCm copies with a kernel in any direction. The name of the call tells it (hipMemcpyDtoDAsync).
    """
    host = Events.of(trace.plane(HOST))
    calls = host.having("correlation_id")
    ids, names = calls.integers("correlation_id", -2), [*calls.names, ""]
    found = 0
    for events, step in _placed(trace, steps, lambda name: name.startswith(_COPY_KERNEL)):
        inside = events.where(step >= 0)
        call = joined(inside.integers("correlation_id", -1), ids, np.arange(len(calls)))
        found += sum("DtoD" not in names[place] for place in call.tolist())
    return found


def _gpu_copies(trace: Trace, steps: Steps) -> Iterator[tuple[Ints, Ints]]:
    """Return, for each GPU, the steps of its host copies, and their bytes (-1 if unknown)."""
    for events, step in _placed(trace, steps, lambda name: gpu_kind(name) in ("input", "output")):
        code, texts = labels(events, "memcpy_details")
        sizes = [int(match[1]) if (match := _SIZE.search(text)) else -1 for text in texts]
        yield step, np.array(sizes, np.int64)[code]


def _tpu_copies(plane: Plane, steps: Steps) -> tuple[Ints, Ints]:
    """Return the steps of a core's host transfers, and their bytes (-1 if unknown)."""
    category, size = metadata_texts(plane, "hlo_category"), metadata_texts(plane, "bytes_accessed")
    events = tpu_ops(plane).named(lambda name: is_host_transfer(name, category.get(name, "")))
    sizes = [
        int(size[name]) if size.get(name, "").isdigit() and int(size[name]) else -1
        for name in plane.names
    ]
    return own_steps(plane, steps).of(events.start), np.array(sizes, np.int64)[
        plane.name_index[events.rows]
    ]


def is_host_transfer(text: str, category: str) -> bool:
    """
    Return whether an instruction moves data from or to the host: infeed, outfeed, or a host copy.

    S(5) marks host memory in a layout (openxla/xla, xla/layout.h, Layout::kHostMemorySpace).
    """
    if category in ("infeed", "outfeed", "host send", "host recv"):
        return True
    result = text.partition(" copy-start(")[
        0
    ]  # of an asynchronous copy: target, source and context
    return category in ("copy-start", "copy") and result.count(_HOST_SPACE) == 1


def _sums(step: Ints, amounts: Ints, steps: Steps) -> Ints:
    """Sum the amounts of each step, shape (n_steps,)."""
    total = np.zeros(len(steps), np.int64)
    np.add.at(total, step[step >= 0], amounts[step >= 0])
    return total
