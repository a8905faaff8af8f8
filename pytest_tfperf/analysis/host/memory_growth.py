"""Measure how much more memory the process holds after each step."""

from __future__ import annotations

import math

import numpy as np

from pytest_tfperf.analysis.compiler_causes import retrace_cause
from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.host.shown import JAX, TENSORFLOW
from pytest_tfperf.analysis.timing import NO_TIMES
from pytest_tfperf.quantities import BYTES, format_quantity
from pytest_tfperf.recording import MemorySamples, Recording
from pytest_tfperf.stats.slope import FEWEST, Slope, slope_with_interval
from pytest_tfperf.text import plural
from pytest_tfperf.values import Source, Unknown, Value

_CONFIDENCE = 0.99
_SETTLES = 0.2
"""Share of the window in which threads start and caches fill; it does not count."""
_CACHED = 64 << 10
"""
Bytes by which caches of Python, malloc and TensorFlow still grow without a leak.

Measured: 8 to 46 KiB in steady steps (tests/tensorflow/capture/test_memory_growth.py).
"""
_SINGLE = 3
"""Increases of other mappings that may be something else than a leak."""
_DRAINING = "the input buffers were still draining, and their memory with them"
_TRY = "look for what keeps objects from step to step: {}"
_KEEPS = {
    TENSORFLOW: "a list of losses that are tensors, a cache, a tf.function or dataset made in each "
    "step",
    JAX: "a list of losses that are jax.Arrays, a cache, a jax.jit function made in each step",
}
_KEEPS_ANYWHERE = "a list of losses, a cache"


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
    return Value.of(
        "memory_growth",
        used.estimate + most,
        Source.TIMED,
        low=used.low + least - _CACHED / n_steps,
        high=used.high + most,
        bounds=f"{_CONFIDENCE:.0%} interval over {n_steps} steps",
        n_steps=n_steps,
        **_cause(settled, recording),
    )


def _cause(samples: MemorySamples, recording: Recording) -> dict[str, str]:
    """
    Return `where` and `try`: retraces in the same steps, or what keeps objects.

    Traces are the cause if blocks without them have less than half of the growth.
    """
    where = _where(samples)
    traced = [one for one in recording.traced or () if one.step >= samples.first_call]
    at = [one.step - samples.first_call for one in traced]
    counts, _ = np.histogram(at, bins=[*samples.n_steps[:-1], samples.n_steps[-1] - 0.5])
    grown = np.diff(np.sum([readings for _, readings in _kinds(samples)], axis=0))
    if not counts.sum() or 2 * grown[counts == 0].sum() > grown.sum():
        keeps = _KEEPS.get(recording.framework, _KEEPS_ANYWHERE)
        return {"where": where, "try": _TRY.format(keeps)}
    n, each = int(counts.sum()), format_quantity(float(grown.sum() / counts.sum()), BYTES)
    traces = (
        f"{plural(n, 'retrace')} in the same steps, {each} each, as the process keeps each trace"
    )
    where = f"{traces}; {where}"
    return {**retrace_cause(traced, recording.framework), "where": where}


def _settled(samples: MemorySamples) -> MemorySamples:
    """Leave out the samples of the first steps."""
    first = math.floor(_SETTLES * len(samples.n_steps))
    return MemorySamples(
        n_steps=samples.n_steps[first:],
        heap=samples.heap[first:],
        python=samples.python[first:],
        mapped=samples.mapped[first:],
        devices=samples.devices[first:],
        first_call=samples.first_call,
    )


def _kinds(samples: MemorySamples) -> list[tuple[str, tuple[int, ...]]]:
    """List the kinds of memory that are known to the byte, with their readings."""
    kinds = [("C heap", samples.heap), ("small objects of Python", samples.python)]
    return [*kinds, ("GPUs", samples.devices)] if samples.devices else kinds


def _mapped(samples: MemorySamples) -> tuple[float, float]:
    """
    Return bounds on the bytes that other mappings grow by in a step.

    A few mappings of any size, such as the stacks of threads that start late, are no growth.
    """
    grown = samples.mapped[-1] - samples.mapped[0]
    n_steps = samples.n_steps[-1] - samples.n_steps[0]
    increases = np.sort(np.diff(samples.mapped))[-_SINGLE:]
    least = (grown - int(increases[increases > 0].sum())) / n_steps
    return (least, grown / n_steps) if least > 0 else (0.0, 0.0)


def _slope(samples: MemorySamples, *readings: tuple[int, ...]) -> Slope | None:
    held = np.sum(readings, axis=0).tolist()
    return slope_with_interval(samples.n_steps, held, _CONFIDENCE)


def _where(samples: MemorySamples) -> str:
    """Tell the growth of each kind of memory."""
    slopes = [(name, _slope(samples, readings)) for name, readings in _kinds(samples)]
    found = [(name, slope.estimate) for name, slope in slopes if slope is not None]
    return "a step: " + ", ".join(
        f"{name} {format_quantity(number, BYTES)}"
        for name, number in (*found, ("other mappings", _mapped(samples)[1]))
    )
