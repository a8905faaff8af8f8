"""Derive metrics from the clock: steps that were not profiled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from pytest_tfperf.advice.step_remedies import gap_cause
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import RATIO, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import INTERFERENCE
from pytest_tfperf.stats.steady_state import find_trend, slow_start
from pytest_tfperf.text import plural
from pytest_tfperf.values import TRACED_BEFORE, Source, Unknown, Value

_INSTRUMENTED = (
    "Python was traced in the timed window (coverage, a debugger), which takes time of its own: "
    "no time is recorded as a baseline"
)
_DRAINING = "the input buffers were still draining: step_time is not recorded as a baseline"
_OF_THE_STEP = ("step_time", "step_time_p90", "step_time_p99", "throughput")
_UNEVEN = 1.25  # mean ÷ median of steps, from which rare long steps matter
_SLOWER = 1.05  # first blocks ÷ those that count, from which it is said
_LONG_GAPS = 0.2  # of the loop, which then takes a quarter longer than its steps
_STEPS_FOR_P99 = 300
_COMPUTES = 0.1  # processor time ÷ time of a step, under which it is of the scheduler and Python
_LEAST_IN_CALLS = 0.9  # of the time of a step, in the calls themselves
_ENQUEUED = (
    "calls return before their steps end, so single steps have no times of their own; "
    "latency=True waits for each"
)
NO_TIMES = (
    "nothing was timed: only tf_profile(step, data), tf_profile.steps(data) and Keras loops give "
    "times"
)
TRACED = "traced steps, which the profiler slows down"
"""Origin of times that come from a trace."""
TRACED_NOTE = f"step_time and input_wait are of {TRACED}"


def analyse(evidence: Evidence) -> Findings:
    """Find the times of steps that were not profiled, and what to know of them."""
    recording = evidence.recording
    notes, values = timing_notes(recording), timed_values(recording, evidence.examples_per_step)
    return Findings(
        values=values | {name: values[name].noted(notes) for name in _OF_THE_STEP},
        notes=(_INSTRUMENTED,) if recording.instrumented else (),  # each check has it as a reason
    )


def timed_values(recording: Recording, examples_per_step: float | None) -> dict[str, Value]:
    """Return times of steps, throughput, epoch_gap and other_load, of steady blocks only."""
    why = recording.ended or NO_TIMES
    values = {"first_step_time": _first_step(recording, why)}
    if not recording.blocks:
        unknown = (*_OF_THE_STEP, "step_cpu_time", "other_load", "epoch_gap")
        return values | {name: Value.unknown(name, why) for name in unknown}
    values["step_time"] = timed_step(recording)
    values["step_cpu_time"] = _step_cpu(recording, values["step_time"].number or 0.0)
    values["other_load"] = _other_load(recording)
    values |= _percentiles(recording)
    values["throughput"] = _throughput(recording, examples_per_step)
    values["epoch_gap"] = _epoch_gap(recording)
    return values


def timing_notes(recording: Recording) -> tuple[str, ...]:
    """Return notes on draining buffers, slow first blocks, gaps of epochs and unsteady blocks."""
    return (
        *(() if recording.settled else (_DRAINING,)),
        *_left_out(recording),
        *_between_epochs(recording),
        *_uneven(recording),
        *_unsteady(recording),
    )


def _left_out(recording: Recording) -> tuple[str, ...]:
    """Return a note if the first blocks do not count, and would have changed the time."""
    per_step = block_seconds(recording)
    n_dropped = slow_start(per_step)
    if not n_dropped:
        return ()
    first, rest = map(statistics.median, (per_step[:n_dropped], per_step[n_dropped:]))
    if first < _SLOWER * rest:
        return ()
    return (
        f"the first {n_dropped} of {len(per_step)} timed blocks do not count, since they were "
        f"slower ({format_quantity(first, SECONDS)} a step)",
    )


def _uneven(recording: Recording) -> tuple[str, ...]:
    """Return a note if rare long steps make the mean of the timed steps larger than the median."""
    if not recording.blocks:
        return ()
    median, mean = timed_step(recording).number or 0.0, _mean_step(recording)
    if mean <= _UNEVEN * median:
        return ()
    calls, first = np.array(_steady_calls(recording)), _n_dropped_calls(recording)
    begins = np.isin(np.arange(first, first + len(calls)), recording.epoch_starts)
    longer = np.maximum(calls - median, 0.0)
    what = f"the mean of the timed steps is {format_quantity(mean, SECONDS)}, {mean / median:.1f} "
    what += f"times their median ({format_quantity(median, SECONDS)}), which step_time is"
    if begins.any() and 2 * longer[begins].sum() > longer.sum():
        took = format_quantity(float(np.median(calls[begins])), SECONDS)
        return (f"{what}: the first step of each epoch takes {took}",)
    rare = calls > 2 * median
    if 2 * longer[rare].sum() > longer.sum():
        shown = format_quantity(float(calls.max()), SECONDS)
        what += f": {rare.sum()} of {len(calls)} steps take more than twice as long, up to {shown}"
    return (what,)


def mean_step(recording: Recording) -> Value:
    """Return the mean seconds of a step over the steady blocks, with the details of step_time."""
    time = timed_step(recording)
    return time if time.number is None else time.changed(number=_mean_step(recording))


def _mean_step(recording: Recording) -> float:
    counted = recording.blocks[slow_start(block_seconds(recording)) :]
    return sum(seconds for seconds, _ in counted) / sum(steps for _, steps in counted)


def _unsteady(recording: Recording) -> tuple[str, ...]:
    per_step = block_seconds(recording)
    counted = per_step[slow_start(per_step) :]
    trend = find_trend(counted)
    if trend is None or not recording.settled:
        return ()
    what, why = (
        ("fell", "give it more warm-up (warmup=)")
        if trend.per_block < 0
        else (
            "rose",
            (
                "the machine slows down (heat, a CPU quota, other load), or what the step works "
                "on grows"
            ),
        )
    )
    by, a_block = (
        format_quantity(abs(change), RATIO) for change in (trend.in_all, trend.per_block)
    )
    return (
        f"step_time is not steady: over {len(counted)} blocks it {what} by {by} "
        f"({a_block} a block): {why}",
    )


def _epoch_gap(recording: Recording) -> Value:
    if not recording.epoch_gaps_s:
        return Value.unknown("epoch_gap", "no epoch ended in the timed window")
    gap = statistics.median(recording.epoch_gaps_s)
    detail = {"n_gaps": len(recording.epoch_gaps_s), **gap_cause(recording, gap)}
    return Value.of("epoch_gap", gap, Source.TIMED, **detail)


def _between_epochs(recording: Recording) -> tuple[str, ...]:
    """Return a note if much of the timed window passed between the epochs."""
    gaps, steps = sum(recording.epoch_gaps_s), sum(seconds for seconds, _ in recording.blocks)
    if not steps or gaps < _LONG_GAPS * (gaps + steps):
        return ()
    value = _epoch_gap(recording)
    what = [
        f"{format_quantity(gaps / (gaps + steps), SHARE)} of the timed window passed between epochs"
    ]
    what += [f"epoch_gap is {format_quantity(value.number or 0.0, SECONDS)}"]
    longest = max(recording.epoch_gaps_s)
    if 2 * longest > gaps and len(recording.epoch_gaps_s) > 2:
        what[-1] += f", and the longest of {len(recording.epoch_gaps_s)} took "
        what[-1] += format_quantity(longest, SECONDS)
    what += [value.detail[key] for key in ("where", "try") if key in value.detail]
    return (f"{what[0]}, which step_time leaves out: {'; '.join(what[1:])}",)


def block_seconds(recording: Recording) -> tuple[float, ...]:
    """Return the seconds of a step in each timed block."""
    return tuple(seconds / steps for seconds, steps in recording.blocks)


def median_precision(samples: Sequence[float]) -> float | None:
    """
    Return half the width of a 95 % interval of the median ÷ the median, None under three samples.
    The standard error of the median of normal samples is 1.2533 σ/√n, with σ from the median
    absolute deviation (× 1.4826).
    """
    if len(samples) < 3:
        return None
    middle = statistics.median(samples)
    sigma = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return 1.96 * 1.2533 * sigma / math.sqrt(len(samples)) / middle if middle else None


def timed_step(recording: Recording) -> Value:
    """Return step_time: the median over the steady blocks of block time ÷ steps."""
    per_step = block_seconds(recording)
    if not per_step:
        return Value.unknown("step_time", recording.ended or NO_TIMES)
    n_dropped = slow_start(per_step)
    counted = per_step[n_dropped:]
    return Value.of(
        "step_time",
        statistics.median(counted),
        Source.TIMED,
        n_blocks=len(per_step),
        n_dropped=n_dropped,
        n_steps=sum(steps for _, steps in recording.blocks[n_dropped:]),
        precision=median_precision(counted),
        settled=recording.settled,
        instrumented=recording.instrumented,
        **({INTERFERENCE: list(recording.interference)} if recording.interference else {}),
    )


def _step_cpu(recording: Recording, step_s: float) -> Value:
    """Return step_cpu_time: the median over the steady blocks of processor time ÷ steps."""
    if isinstance(recording.block_cpu_s, Unknown):
        why = recording.block_cpu_s.why or "the processor time of the steps was not measured"
        return Value.unknown("step_cpu_time", why)
    n_dropped = slow_start(block_seconds(recording))
    blocks = zip(recording.block_cpu_s, recording.blocks, strict=True)
    counted = [cpu_s / n_steps for cpu_s, (_, n_steps) in blocks][n_dropped:]
    cpu_s = statistics.median(counted)
    if cpu_s < _COMPUTES * step_s:
        shown = format_quantity(cpu_s / step_s, SHARE)
        least = format_quantity(_COMPUTES, SHARE)
        why = f"the step waits: it computes for {shown} of its time, under {least}, which is noise"
        return Value.unknown("step_cpu_time", why)
    low, high = np.quantile(counted, (0.25, 0.75))
    if high - low > cpu_s:
        why = (
            f"it differs from block to block, from {format_quantity(float(low), SECONDS)} to "
            f"{format_quantity(float(high), SECONDS)} a step in half of them: threads that spin "
            "while they wait for a core take more of it than the step (OpenBLAS, OpenMP)"
        )
        return Value.unknown("step_cpu_time", why)
    precision = median_precision(counted)
    return Value.of("step_cpu_time", cpu_s, Source.TIMED, precision=precision)


def _other_load(recording: Recording) -> Value:
    if recording.other_load is None:
        return Value.unknown(
            "other_load", "the system does not tell it, or the cores changed meanwhile"
        )
    return Value.of("other_load", recording.other_load, Source.TIMED)


def traced_step(steps: Steps) -> Value:
    """Return step_time of traced steps: the median period, divided by the steps within it."""
    if steps.why_untimed:
        return Value.unknown("step_time", steps.why_untimed)
    sizes = [1] * len(steps) if steps.sizes is None else np.maximum(steps.sizes, 1).tolist()
    periods = [
        period * 1e-12 / size for period, size in zip(steps.period_ps.tolist(), sizes, strict=True)
    ]
    detail = {"traced": TRACED, "n_steps": steps.n_steps}
    return Value.of("step_time", statistics.median(periods), Source.TRACE, **detail)


def _steady_calls(recording: Recording) -> tuple[float, ...]:
    """Return the seconds of a step in the calls of the steady blocks."""
    return recording.step_seconds[_n_dropped_calls(recording) :]


def _n_dropped_calls(recording: Recording) -> int:
    """Return the number of calls before the steady blocks."""
    n_dropped = slow_start(block_seconds(recording))
    share = sum(steps for _, steps in recording.blocks[:n_dropped]) / sum(
        steps for _, steps in recording.blocks
    )
    return min(round(share * len(recording.step_seconds)), len(recording.step_seconds) - 1)


def _share_in_calls(recording: Recording) -> float:
    """Return the share of a block's time that passes in its calls, in the median over blocks."""
    n_dropped, calls = slow_start(block_seconds(recording)), recording.step_seconds
    steps = np.array([0, *(steps for _, steps in recording.blocks)]).cumsum()
    ends = steps * (len(calls) / steps[-1])  # of blocks, in calls, which may hold several steps
    before_s = np.interp(ends, np.arange(len(calls) + 1), np.array([0.0, *calls]).cumsum())
    in_calls_s = np.diff(before_s) * (steps[-1] / len(calls))
    shares = in_calls_s / [seconds for seconds, _ in recording.blocks]
    return float(np.median(shares[n_dropped:]))


def _percentiles(recording: Recording) -> dict[str, Value]:
    """Return the percentiles of single steps, unknown where calls only enqueue steps."""
    single = _steady_calls(recording)
    if _share_in_calls(recording) < _LEAST_IN_CALLS:
        names = ("step_time_p90", "step_time_p99")
        return {name: Value.unknown(name, _ENQUEUED) for name in names}
    p90 = Value.of("step_time_p90", _quantile(single, 0.9), Source.TIMED, n_steps=len(single))
    return {"step_time_p90": p90, "step_time_p99": _p99(single)}


def _first_step(recording: Recording, why: str) -> Value:
    if recording.first_step_s is None:
        return Value.unknown("first_step_time", why)
    if isinstance(recording.first_step_s, Unknown):
        unknown = Value.unknown("first_step_time", recording.first_step_s.why)
        return unknown.changed(detail={TRACED_BEFORE: True})
    return Value.of(
        "first_step_time",
        recording.first_step_s,
        Source.TIMED,
        instrumented=recording.first_step_instrumented,
    )


def _p99(single: Sequence[float]) -> Value:
    """
    Return step_time_p99, unknown under 300 steps, of which with more than 5 % chance none is above
    the 99th percentile (0.99^n ≤ 0.05 from n = 299 on).
    """
    n_steps = len(single)
    if n_steps < _STEPS_FOR_P99:
        found = plural(n_steps, "single step was", "single steps were")
        why = (
            f"{found} timed, and the 99th percentile needs {_STEPS_FOR_P99}: steps=400, with data "
            "or epochs for them"
        )
        return Value.unknown("step_time_p99", why)
    return Value.of("step_time_p99", _quantile(single, 0.99), Source.TIMED, n_steps=n_steps)


def _throughput(recording: Recording, examples_per_step: float | None) -> Value:
    """
    Return examples ÷ seconds of steady blocks and gaps between epochs; of an epoch of known length,
    each step has its share of a gap.
    """
    if examples_per_step is None:
        return Value.unknown("throughput", "examples per step are unknown; pass examples_per_step=")
    n_dropped, n_calls = _n_dropped_calls(recording), len(recording.step_seconds)
    counted = zip(recording.epoch_starts, recording.epoch_gaps_s, strict=True)
    gaps = [seconds for call, seconds in counted if call >= n_dropped]
    calls = recording.epoch_calls * len(gaps) if recording.epoch_calls else n_calls - n_dropped
    per_call = sum(steps for _, steps in recording.blocks) / n_calls
    seconds = _mean_step(recording) + (sum(gaps) / (calls * per_call) if gaps else 0.0)
    return Value.of(
        "throughput",
        examples_per_step / seconds,
        Source.TIMED,
        examples_per_step=examples_per_step,
        n_gaps=len(gaps),
    )


def _quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least this share of the samples do not exceed."""
    return sorted(samples)[max(math.ceil(share * len(samples)) - 1, 0)]
