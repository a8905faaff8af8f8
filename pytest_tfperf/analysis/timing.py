"""Metrics from the clock: steps that were not profiled."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Source, Value

NO_TIMES = "nothing was timed: only tf_profile(step, data), tf_profile.steps(data) and Keras loops give times"


def timed_values(recording: Recording) -> dict[str, Value]:
    """step_time, step_time_p90, first_step_time, throughput and epoch_gap."""
    why = recording.ended or NO_TIMES
    values = {"first_step_time": _first_step(recording, why)}
    if not recording.blocks:
        unknown = ("step_time", "step_time_p90", "throughput", "epoch_gap")
        return values | {name: Value.unknown(name, why) for name in unknown}
    values["step_time"] = step_time = _step_time(recording)
    values["step_time_p90"] = Value.of(
        "step_time_p90", _quantile(recording.step_seconds, 0.9), Source.TIMED,
        n_steps=len(recording.step_seconds),
    )  # fmt: skip
    values["throughput"] = _throughput(recording, step_time)
    values["epoch_gap"] = (
        Value.of("epoch_gap", statistics.median(recording.epoch_gaps_s), Source.TIMED, n_gaps=len(recording.epoch_gaps_s))
        if recording.epoch_gaps_s
        else Value.unknown("epoch_gap", "no epoch ended in the timed window")
    )
    return values


def median_precision(samples: Sequence[float]) -> float | None:
    """
    Half the width of a 95 % interval of the median ÷ the median, None under three samples.

    Standard error of the median of normal samples, 1.2533 σ/√n, with σ from the median absolute deviation (× 1.4826).
    """
    if len(samples) < 3:
        return None
    middle = statistics.median(samples)
    sigma = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return 1.96 * 1.2533 * sigma / math.sqrt(len(samples)) / middle if middle else None


def _step_time(recording: Recording) -> Value:
    """Median over blocks of block time ÷ steps."""
    per_step = [seconds / steps for seconds, steps in recording.blocks]
    return Value.of(
        "step_time", statistics.median(per_step), Source.TIMED,
        n_blocks=len(per_step), n_steps=sum(steps for _, steps in recording.blocks),
        precision=median_precision(per_step), settled=recording.settled,
    )  # fmt: skip


def _first_step(recording: Recording, why: str) -> Value:
    if recording.first_step_s is None:
        return Value.unknown("first_step_time", why)
    if recording.first_step_why:
        return Value.unknown("first_step_time", recording.first_step_why)
    return Value.of("first_step_time", recording.first_step_s, Source.TIMED)


def _throughput(recording: Recording, step_time: Value) -> Value:
    if recording.examples_per_step is None:
        return Value.unknown("throughput", "examples per step are unknown; pass examples_per_step=")
    assert step_time.number is not None
    return Value.of(
        "throughput", recording.examples_per_step / step_time.number, Source.TIMED, examples_per_step=recording.examples_per_step
    )


def _quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share of the samples do not exceed."""
    return sorted(samples)[max(math.ceil(share * len(samples)) - 1, 0)]
