"""Kernels that a step launches, copies between host and device, and the arrays that JAX passes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import COPY_AHEAD, text_for
from pytest_tfperf.advice.step_remedies import lines_of, transfer_remedy
from pytest_tfperf.facts.device_ops import gpu_kind
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.steps import Steps, linked_kernels, on_the_device, only_own, own_steps
from pytest_tfperf.metrics.counts import counted_by, per_step
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.kernels import NO_GPU, is_kernel
from pytest_tfperf.metrics.validity import elsewhere
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import accelerators, gpus, stream_events, tpu_ops, tpus
from pytest_tfperf.trace.events import Events, enclosing, joined, labels, metadata_texts
from pytest_tfperf.trace.host_events import called_function, jax_calls
from pytest_tfperf.trace.intervals import EMPTY, covered, merge, subtract
from pytest_tfperf.trace.xspace import HOST, Plane, Trace
from pytest_tfperf.values import Unknown, Value

_BY_HOST = ("H2D Dispatch", "D2H Copy From Staging Buffer", "np.asarray(jax.Array)")
"""Events in which the host works on copies to and from a GPU, or waits for them (JAX 0.11)."""
COPIES, BYTES = "host_device_copies", "host_device_bytes"
_PUTS = ("DevicePut", "DevicePutWithSharding")
"""Events of an array on its way to devices (jaxlib 0.6 to 0.11): an argument, an explicit put."""
_READS = ("np.asarray(jax.Array)",)
"""Events of an array that JAX gives to Python (jaxlib 0.6 to 0.11)."""
EXPLICIT_PUT = "stage"
"""Name of JAX's function that puts an array, as `jnp.asarray` of NumPy's does (jax/_src, 0.10)."""
_READ_BY = re.compile(
    r"jax/_src/(array\.py:.*(_value|__array__|__(int|float|bool|index|complex)__|tolist|item)$|"
    r"array_methods\.py:_item|api\.py:device_get)"
)
"""Functions of JAX with which Python reads an array."""
_BETWEEN_DEVICES = (
    "CopyToMemorySpace_Direct",
    "CopyToMemorySpace",
    "TfrtCpuBuffer::CopyToDevice",
)
"""Events within a put of an array that is on a device already (jaxlib 0.11, 0.10 and 0.6)."""
_NONE_SHOWN = (
    "the trace has no event of a transfer of JAX, and does not tell whether its version has them"
)
_ELSEWHERE = "another thread passed or read arrays while the steps ran"
_ITEM = "jax/_src/numpy/array_methods.py:_item"
"""JAX's function of `x.item()` (0.6 to 0.11), in which NumPy reads an array on one CPU in place."""
_OF_SEVERAL = "jax/_src/array.py:__array__"
"""JAX's function that NumPy calls for an array on several devices, which has an event."""
_UNCOUNTED = (
    "the trace does not show `x.item()`, and the steps in which calls of Python are counted did "
    "not run"
)
_UNEQUAL = "steps differ in their calls, as of `x.item()`, which the trace does not show"
_MIXED = "`x.item()` was called where NumPy reads arrays of several devices, which may be its own"
_NO_SIZE = "JAX does not say how large the {} arrays are that steps on a CPU pass or read"
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


def copies_for_input(evidence: Evidence) -> dict[str, str]:
    """
    Return `where` and `try` if copies to GPUs are most of the waiting for input, else nothing; a
    TPU's infeed waits for the host, and does not tell copies.
    """
    if evidence.trace is None or not gpus(evidence.trace):
        return {}
    steps, breakdown = evidence.steps, evidence.breakdown
    spans = breakdown.device.spans
    others = merge(EMPTY, *(found for kind, found in spans.items() if kind != "input"))
    copies = subtract(spans.get("input", EMPTY), others)
    copied_ps = covered(copies, steps.start_ps, steps.end_ps).sum()
    if 2 * copied_ps <= breakdown.parts_ps["input"].sum():
        return {}
    return {
        "where": "copies of the elements from the host to the device, which nothing hides",
        "try": f"{text_for(COPY_AHEAD, evidence.framework)}; or send fewer bytes, as uint8 "
        "images that the model casts",
    }


def copies_by_host(evidence: Evidence, trace: Trace) -> dict[str, str]:
    """Return `where` and `try` if the host copies JAX's arrays in most of `other`, else nothing."""
    steps, breakdown = evidence.steps, evidence.breakdown
    copies = Events.of(trace.plane(HOST)).called(*_BY_HOST)
    if not len(copies):
        return {}
    idle = subtract(merge(copies.spans), breakdown.device.busy)
    if 2 * covered(idle, steps.start_ps, steps.end_ps).sum() < breakdown.parts_ps["other"].sum():
        return {}
    return {
        "where": "the host's part of copies between NumPy arrays and the device, while it waits",
        "try": f"{COPY_AHEAD[JAX]}; read results after the loop, or once in many steps",
    }


def jax_transfers(evidence: Evidence, trace: Trace) -> dict[str, Value]:
    """
    Return host_device_copies and host_device_bytes of a step of JAX on a CPU, an array once for all
    devices, as `jax.transfer_guard` logs them; counted calls of Python tell `x.item()`, which has
    no event.
    """
    puts, reads = _transfers(trace)
    why = evidence.why_xla_unknown
    if why is None and not evidence.in_process and not len(puts) + len(reads):
        why = _NONE_SHOWN
    if why is None and any(len(elsewhere(evidence, events)) for events in (puts, reads)):
        why = _ELSEWHERE
    if why:
        return {name: Value.unknown(name, why) for name in (COPIES, BYTES)}
    steps = evidence.launched
    items = _items(evidence) if evidence.in_process else 0
    if isinstance(items, Unknown):
        return {name: Value.unknown(name, items.why) for name in (COPIES, BYTES)}
    puts, reads = (events.where(steps.of(events.start) >= 0) for events in (puts, reads))
    counts = np.bincount(steps.of(np.concatenate([puts.start, reads.start])), minlength=len(steps))
    counts += items * (1 if steps.sizes is None else np.maximum(steps.sizes, 1))
    copies = per_step(COPIES, counts, steps.sizes, **transfer_cause(evidence, trace, items))
    if counts.any():
        return {COPIES: copies, BYTES: Value.unknown(BYTES, _NO_SIZE.format(int(counts.sum())))}
    return {COPIES: copies, BYTES: per_step(BYTES, counts, steps.sizes)}


def transfer_cause(evidence: Evidence, trace: Trace, items: int = 0) -> dict[str, Any]:
    """Return `where`, `try` and callers for the arrays that steps of JAX pass and read, if any."""
    steps, own = evidence.launched, only_own(evidence.recording.own_functions)
    puts, reads = (events.where(steps.of(events.start) >= 0) for events in _transfers(trace))
    n_reads = len(reads) + items * steps.n_steps
    if not len(puts) + n_reads:
        return {}
    callers = _callers(Events.of(trace.plane(HOST)), puts, own)
    lines = lines_of(one for one in evidence.recording.stacks if _READ_BY.match(one.called))
    cause = transfer_remedy(callers, n_reads, steps.n_steps, lines, own)
    return {**cause, **counted_by(callers + Counter({"": n_reads}))}


def reads_in_a_step(evidence: Evidence) -> float:
    """Return the arrays that Python reads in a step, as far as the trace shows them."""
    assert evidence.trace is not None
    _, reads = _transfers(evidence.trace)
    items = _items(evidence)
    n_reads = int((evidence.launched.of(reads.start) >= 0).sum())
    return n_reads / evidence.launched.n_steps + (0 if isinstance(items, Unknown) else items)


def _items(evidence: Evidence) -> int | Unknown:
    """Return the calls of `x.item()` in a step that leave no event, or why they are unknown."""
    calls = evidence.recording.python_calls
    if isinstance(calls, Unknown):
        return Unknown(_UNCOUNTED + (f": {calls.why}" if calls.why else ""))
    n_of = dict.fromkeys((_ITEM, _OF_SEVERAL), 0.0)
    for one in calls.functions:
        file, _, function = one.name.rpartition(":")
        name = f"{file}:{function.rpartition('.')[2]}"
        if name in n_of:
            n_of[name] += one.calls
    items = n_of[_ITEM]
    is_even = len({n_calls / n_steps for n_calls, n_steps in calls.steps}) == 1
    if items and not (items.is_integer() and is_even):
        return Unknown(_UNEQUAL)
    if items and n_of[_OF_SEVERAL]:
        return Unknown(_MIXED)
    return int(items)


def _transfers(trace: Trace) -> tuple[Events, Events]:
    """Return the events of arrays that Python passes to devices, and of those that it reads."""
    host = Events.of(trace.plane(HOST))
    return _puts(host), host.called(*_READS)


def _puts(host: Events) -> Events:
    """Return the events of arrays on their way from Python to devices."""
    puts = host.called(*_PUTS)
    moved = enclosing(puts, host.called(*_BETWEEN_DEVICES))
    return puts.where(~np.isin(np.arange(len(puts)), moved))


def _callers(host: Events, puts: Events, own: Collection[str]) -> Counter[str]:
    """Count the puts by the function whose argument the array is, "" for all others."""
    explicit = {EXPLICIT_PUT}.intersection(own)
    calls = jax_calls(host).named(lambda name: called_function(name) not in explicit)
    caller = enclosing(calls, puts)
    names = [*(called_function(name) for name in calls.names), ""]
    return Counter(names[place] for place in caller.tolist())


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
        copied[COPIES] = copied[COPIES].changed(detail={**copied[COPIES].detail, **cause})
    return Findings(values={"kernel_launches": launches, **copied})


def kernel_launches(trace: Trace, steps: Steps) -> Value:
    """Count a step's kernels on all GPUs, where each was launched, else where it ran."""
    if not any(len(stream_events(plane)) for plane in gpus(trace)):
        return Value.unknown("kernel_launches", NO_GPU)
    counts = [steps.counts(step) for _, step in _placed(trace, steps, is_kernel)]
    return per_step("kernel_launches", sum(counts, np.zeros(len(steps), np.int64)), steps.sizes)


def copy_values(trace: Trace, steps: Steps) -> dict[str, Value]:
    """Return host_device_copies and host_device_bytes of a step, both directions, all devices."""
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
    """Yield each GPU's events of accepted names, and the steps that launched, else ran them."""
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
    Count copies by ROCm's kernels whose launch does not say that they stay on devices, as
    hipMemcpyDtoDAsync does.
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
        int(size[name]) if size.get(name, "").isdecimal() and int(size[name]) else -1
        for name in plane.names
    ]
    return own_steps(plane, steps).of(events.start), np.array(sizes, np.int64)[
        plane.name_index[events.rows]
    ]


def is_host_transfer(text: str, category: str) -> bool:
    """
    Return whether an instruction is an infeed, an outfeed, or a copy from or to memory of the host,
    S(5) in a layout (openxla/xla, xla/layout.h, Layout::kHostMemorySpace).
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
