"""The peak of a step's memory, and how much more the process holds after each step."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import KEEPS_OBJECTS, text_for
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.memory import (
    least_peak,
    live_table,
    memory_table,
    over_step_table,
    reports_device_memory,
    step_peaks,
    why_not_followed,
)
from pytest_tfperf.metrics.counts import retrace_cause
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.timing import NO_TIMES
from pytest_tfperf.quantities import BYTES, SHARE, format_quantity
from pytest_tfperf.recording import Kept, MemorySamples, Recording
from pytest_tfperf.stats.slope import FEWEST, Slope, slope_with_interval
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.hlo_modules import buffer_bytes
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Source, Unknown, Value

_CONFIDENCE = 0.99
_SETTLES = 0.2
"""Share of the window in which threads start and caches fill; it does not count."""
_CACHED = 64 << 10
"""
Bytes by which caches of Python, malloc and TensorFlow still grow without a leak.

Measured: 8 to 46 KiB in steady steps (tests/tensorflow/capture/test_memory_growth.py).
"""
_EXPLAINS = 0.25
"""Least share of the growth of a container that is named as its cause."""
_NAMED = 2
_SINGLE = 3
"""Increases of other mappings that may be something else than a leak."""
_DRAINING = "the input buffers were still draining, and their memory with them"
_NAMES = "NAMES"
_ONE_MODEL = "make and compile the model once, before the steps"
_CLEAR = "call keras.backend.clear_session() after each, since TensorFlow keeps its functions"
_MAKES_MODELS = re.compile(r"(keras|tf_keras)/src/(models|engine)/\w+\.py:\w+\.__init__$")
_TRACKED_BYTES = 1 << 20
"""Below this, what bypasses the allocator outweighs what it knows."""
_UNTRACKED = (
    "not every step allocates 1 MiB that the trace knows of; on a CPU only oneDNN's allocator "
    "reports, and small tensors bypass it"
)
_NO_PLAN = (
    "the trace does not tell XLA's plans of all executables that ran; those from JAX's persistent "
    "compilation cache have other numbers in it"
)
_BOUNDS = "from what the trace and the graph know to the growth of the process"
_PROGRAMS = "from the largest of the step's programs to all of them at once"


def analyse(evidence: Evidence) -> Findings:
    """Find the growth of the memory over the timed window."""
    return Findings(values={"memory_growth": _growth(evidence.recording)})


def _growth(recording: Recording) -> Value:
    samples = recording.memory
    if isinstance(samples, Unknown):
        why = samples.why or recording.ended or NO_TIMES
        return Value.unknown("memory_growth", why)
    if not recording.settled:
        return Value.unknown("memory_growth", _DRAINING)
    settled = _settled(samples)
    used = _slope(settled, *(readings for _, readings in _kinds(settled)))
    if used is None:
        n = len(samples.n_steps) - 1
        why = (
            f"the timed window has {plural(n, 'block')}, and an interval needs {FEWEST}; time more "
            "steps (steps=, with data or epochs for them)"
        )
        return Value.unknown("memory_growth", why)
    n_steps = settled.n_steps[-1] - settled.n_steps[0]
    least, most = _mapped(settled)
    low, estimate = used.low, used.estimate
    tensors = _slope(settled, settled.tensors)
    if tensors is not None and tensors.low > low:  # regions of the heap hold them, by leaps
        low, estimate = tensors.low, tensors.estimate
    return Value.of(
        "memory_growth",
        estimate + most,
        Source.TIMED,
        low=low + least - _CACHED / n_steps,
        high=max(used.high, estimate) + most,
        bounds=f"{format_quantity(_CONFIDENCE, SHARE)} interval over {n_steps} steps",
        n_steps=n_steps,
        **_cause(settled, recording, estimate + most),
    )


def _cause(samples: MemorySamples, recording: Recording, growth: float) -> dict[str, Any]:
    """
    Return `where` and `try`: what is kept, retraces in the same steps, models made in them;
    retraces are the cause if blocks without them have less than half of the growth.
    """
    kept = [one for one in recording.kept if one.size >= _EXPLAINS * growth][:_NAMED]
    where = [_described(one) for one in kept]
    names: dict[str, list[str]] = {}
    for one in kept:
        name = one.place.partition(" of ")[0]
        names.setdefault(_remedy(one, recording.framework), []).append(name)
    remedies = [text.replace(_NAMES, " and ".join(each)) for text, each in names.items()]
    traced = [one for one in recording.traced or () if one.step >= samples.first_call]
    at = [one.step - samples.first_call for one in traced]
    counts, _ = np.histogram(at, bins=[*samples.n_steps[:-1], samples.n_steps[-1] - 0.5])
    grown = np.diff(np.sum([readings for _, readings in _kinds(samples)], axis=0))
    if counts.sum() and 2 * grown[counts == 0].sum() <= grown.sum():
        n, each = int(counts.sum()), format_quantity(float(grown.sum() / counts.sum()), BYTES)
        retraces = f"{plural(n, 'retrace')} in the same steps"
        where.append(f"{retraces}, {each} each, as the process keeps each trace")
        remedies += filter(None, [retrace_cause(traced, recording.framework).get("try")])
    elif not kept and (made := _models_made(recording)):
        where.append(f"Keras makes a model in the steps ({made})")
        remedies.append(_ONE_MODEL if recording.framework == JAX else f"{_ONE_MODEL}; {_CLEAR}")
    elif not kept:
        remedies.append(text_for(KEEPS_OBJECTS, recording.framework))
    found: dict[str, Any] = {"where": "; ".join([*where, _where(samples)])}
    if remedies:
        found["try"] = "; ".join(dict.fromkeys(remedies))
    if kept and growth > 0:
        found["accounted"] = min(sum(one.size for one in kept) / growth, 1.0)
    return found


def _models_made(recording: Recording) -> str:
    """Return the function that makes a model of Keras in half of the steps or more, or nothing."""
    names = [one.name for one in recording.called if one.calls >= 0.5]
    return next((name for name in names if _MAKES_MODELS.match(name)), "").partition(":")[2]


def _described(kept: Kept) -> str:
    """Tell what a container keeps: the list history of train (a.py:3) keeps 1 jax.Array more."""
    size = format_quantity(kept.size, BYTES)
    return f"the {kept.kind} {kept.place} keeps {kept.holds} more a step ({size})"


def _remedy(kept: Kept, framework: str) -> str:
    """Return the remedy of containers that keep such objects, with `_NAMES` for their names."""
    if kept.is_model:
        remedy = f"{_ONE_MODEL}; or leave old ones out of {_NAMES}"
        return remedy if framework == JAX else f"{remedy}, and {_CLEAR}"
    if "dict" in kept.kind.lower():
        limited = "or limit their number: functools.lru_cache(maxsize=n)"
        return f"delete old entries of {_NAMES}, {limited}"
    if kept.is_array:
        return (
            f"keep in {_NAMES} what is needed of each array, a number as float(x) or a copy of a "
            "part, or write the arrays away and clear it"
        )
    return f"drop old entries of {_NAMES}, as collections.deque(maxlen=n) does"


def _settled(samples: MemorySamples) -> MemorySamples:
    """Leave out the samples of the first steps."""
    first = math.floor(_SETTLES * len(samples.n_steps))
    return MemorySamples(
        n_steps=samples.n_steps[first:],
        heap=samples.heap[first:],
        python=samples.python[first:],
        mapped=samples.mapped[first:],
        devices=samples.devices[first:],
        tensors=samples.tensors[first:],
        first_call=samples.first_call,
    )


def _kinds(samples: MemorySamples) -> list[tuple[str, tuple[int, ...]]]:
    """List the kinds of memory that are known to the byte, with their readings."""
    kinds = [("C heap", samples.heap), ("small objects of Python", samples.python)]
    return [*kinds, ("accelerators", samples.devices)] if samples.devices else kinds


def _mapped(samples: MemorySamples) -> tuple[float, float]:
    """Return bounds on a step's growth of other mappings in bytes, of which a few are none."""
    grown = samples.mapped[-1] - samples.mapped[0]
    n_steps = samples.n_steps[-1] - samples.n_steps[0]
    increases = np.sort(np.diff(samples.mapped))[-_SINGLE:]
    least = (grown - int(increases[increases > 0].sum())) / n_steps
    return (least, grown / n_steps) if least > 0 else (0.0, 0.0)


def _slope(samples: MemorySamples, *readings: tuple[int, ...]) -> Slope | None:
    if not all(map(len, readings)):
        return None
    held = np.sum(readings, axis=0).tolist()
    return slope_with_interval(samples.n_steps, held, _CONFIDENCE)


def _where(samples: MemorySamples) -> str:
    """Tell the growth of each kind of memory."""
    slopes = [(name, _slope(samples, readings)) for name, readings in _kinds(samples)]
    found = [(name, slope.estimate) for name, slope in slopes if slope is not None]
    tensors = _slope(samples, samples.tensors)
    if tensors is not None and tensors.estimate > 0:
        found.insert(0, ("tensors in regions of the C heap", tensors.estimate))
    return "a step: " + ", ".join(
        f"{name} {format_quantity(number, BYTES)}"
        for name, number in (*found, ("other mappings", _mapped(samples)[1]))
    )


def analyse_peak(evidence: Evidence) -> Findings:
    """Find the peak of a step's memory."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("peak_memory")
    why = why_not_followed(trace)
    value = Value.unknown("peak_memory", why) if why else _peak_memory(evidence, trace)
    return Findings(values={"peak_memory": value})


def analyse_allocators(evidence: Evidence) -> Findings:
    """Find what allocators held over the steps, and at their peaks."""
    trace = evidence.trace
    if trace is None or why_not_followed(trace):
        return Findings()
    peaks = evidence.memory_peaks
    if not peaks:
        return Findings()
    tables = {
        "memory": memory_table(peaks),
        "memory_over_step": over_step_table(peaks[0]),
        "memory_at_peak": live_table(peaks[0]),
    }
    return Findings(tables=tables)


def _peak_memory(evidence: Evidence, trace: Trace) -> Value:
    """Return XLA's own plan where XLA alone ran the steps, else what allocators reported."""
    if evidence.xla.modules and not evidence.runs_executor:
        planned = _planned(evidence, trace)
        if planned is not None:
            return planned
    peaks = step_peaks(trace, evidence.steps)
    least = 0 if peaks is None else int(peaks.min())
    if accelerators(trace):
        needed = 0
    else:
        graph = evidence.code.graph
        needed = 0 if isinstance(graph, Unknown) else graph.allocated
    if peaks is None or least < _TRACKED_BYTES or peaks.max() < needed:
        return _bounded(evidence, trace, max(least, needed))
    on_device = reports_device_memory(trace)
    bound = {} if on_device else {"in_any_order": least_peak(trace, evidence.steps)}
    extremes = {} if least == peaks.max() else {"low": least, "high": int(peaks.max())}
    return Value.of("peak_memory", least, Source.TRACE, on_device=on_device, **bound, **extremes)


def _planned(evidence: Evidence, trace: Trace) -> Value | None:
    """Return the memory of XLA's plans; of a step's several programs it is known within bounds."""
    plans, use = buffer_bytes(trace), evidence.xla
    traced = use.all_in_metadata(plans)
    if plans and traced is None:
        return Value.unknown("peak_memory", _NO_PLAN)
    sizes = {name: size for name, size in plans.items() if size}
    steps = use.steps_in_metadata(sizes)
    # those of a cache have other numbers in the events, which tell no step of theirs
    cached = [name for name in traced or () if name in sizes and name not in steps]
    steps |= dict.fromkeys(cached, np.arange(use.launches.size))
    # a rare step may need more, whether it is among the traced ones or not
    rare = {name for name in evidence.late.compiled or () if name in sizes} - steps.keys()
    ran = [sizes[name] for name in (*steps, *rare)]
    if not ran:
        return None
    largest = max(ran)
    held = np.maximum(use.launches - use.clusters, 0) * largest  # of programs that run again
    for name, indices in steps.items():
        held[indices] += sizes[name]
    most = int(held.max(initial=0))
    if use.launches.max(initial=0) > 1:
        most += sum(sizes[name] for name in rare)
    if most <= largest:
        return Value.of("peak_memory", largest, Source.HLO)
    return Value.of("peak_memory", largest, Source.HLO, low=largest, high=most, bounds=_PROGRAMS)


def _bounded(evidence: Evidence, trace: Trace, known: int) -> Value:
    """Return bounds from the growth of the process, of steps that no accelerator runs."""
    most = evidence.recording.memory_bound
    if isinstance(most, Unknown) or accelerators(trace):
        why = most.why if isinstance(most, Unknown) and most.why else ""
        return Value.unknown("peak_memory", f"{_UNTRACKED}; {why}" if why else _UNTRACKED)
    low = min(known, most)
    return Value.of("peak_memory", most, Source.TIMED, low=low, high=most, bounds=_BOUNDS)
