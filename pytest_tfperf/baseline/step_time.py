"""The step time of one run against those recorded, in words."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.checks.limits import explanation, why_disturbed
from pytest_tfperf.metrics import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.stats.prediction_interval import (
    LEAST_SECONDS,
    OUTRIGHT,
    History,
    Standing,
    stand,
)
from pytest_tfperf.stats.signed_rank import Interval, format_ratio
from pytest_tfperf.values import Json, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """
    What a step time is held against: `runs` and `anchor` name the latest runs and the first ones in a sentence, `newest` the commit
    of the last one; `few` says why under five runs are not decided on, `collect` and `accept` what to try: for more runs, and where a
    change is meant.
    """

    history: History
    runs: str
    anchor: str = ""
    newest: str = ""
    few: str = ""
    collect: str = ""
    accept: str = ""


def judge(
    value: Value, past: Past, tolerance: float, why_not: str | None, changed: str
) -> tuple[Verdict, str]:
    """
    Verdict and message on a known step time.

    Args:
        why_not: Why it is no sample of what the step takes, and not decided on; None where it is one.
        changed: What else is different from what was recorded, for the message of a regression.
    """
    assert value.number is not None
    standing = stand(value.number, past.history, tolerance)
    found = f"step_time is {format_quantity(value.number, SECONDS)}, {_ratio(standing, past)}"
    if why_not is not None:
        return Verdict.INCONCLUSIVE, f"{found}: {why_not}"
    if standing.verdict is Verdict.REGRESSION:
        return standing.verdict, "\n".join(
            [_slower(value, standing, past), *_causes(value, past, changed)]
        )
    if standing.recent is None:
        return standing.verdict, f"{found}; {past.few}{next_step(past.collect)}"
    found += f", {wanted(standing)}"
    if standing.verdict is Verdict.IMPROVED:
        return (
            standing.verdict,
            f"{found}: it is faster{next_step(past.accept and f'{past.accept}, to hold it from now on')}",
        )
    return (
        standing.verdict,
        found if standing.verdict is Verdict.PASS else f"{found}{_undecided(standing, past)}",
    )


def figures(value: Value, past: Past, tolerance: float) -> Json:
    """What a report shows of a known step time beside those that it is held against: see `results.Check`."""
    assert value.number is not None
    standing, history = stand(value.number, past.history, tolerance), past.history
    known = standing.recent
    bounds = {"low": known.low, "high": known.high, "confidence": known.confidence} if known else {}
    samples = {"runs": list(history.runs), "anchor": history.anchor}
    return {
        "before": standing.level,
        "after": value.number,
        "ratio": standing.ratio,
        **bounds,
        "smallest": standing.smallest,
        **samples,
    }


def why_not_timed(profile: Profile, shared_cpu: bool) -> str | None:
    """Why a known step time is no sample of what the step takes; None where it is one. `shared_cpu`: other workers used the CPU."""
    settled = profile.value("step_time").detail.get("settled", False)
    return why_disturbed(profile, shared_cpu) or (
        None if settled else "the input buffers were still draining"
    )


def wanted(standing: Standing) -> str:
    """What is tolerated, and why it is more than was asked for."""
    text = f"wanted at most {format_quantity(standing.tolerance, RATIO)} slower"
    if standing.raised_from is None:
        return text
    least = format_quantity(LEAST_SECONDS, SECONDS)
    return f"{text} (raised from {format_quantity(standing.raised_from, RATIO)}: less than {least} a step is never slower)"


def _ratio(standing: Standing, past: Past) -> str:
    bounds = (
        f" ({_bounds(standing.recent)}, {100 * standing.recent.confidence:.3g} % interval)"
        if standing.recent
        else ""
    )
    return f"{format_ratio(standing.ratio)} times the {format_quantity(standing.level, SECONDS)} of {past.runs}{bounds}"


def _slower(value: Value, standing: Standing, past: Past) -> str:
    """The sentence of a regression: by the latest runs, by the anchor, or for being beyond what any noise explains."""
    assert value.number is not None
    now, bound, recent, anchor = (
        format_quantity(value.number, SECONDS),
        1 + standing.tolerance,
        standing.recent,
        standing.anchor,
    )
    if recent is not None and anchor is not None and recent.low <= bound < anchor.low:
        before = format_quantity(value.number / anchor.ratio, SECONDS)
        first = f"step_time is {now}, {format_ratio(anchor.ratio)} times the {before} of {past.anchor} ({_bounds(anchor)}"
        alone = f"to {past.runs} alone it is {format_ratio(recent.ratio)} ({_bounds(recent)})"
        drift = (
            f"slow drift: {alone}, which would pass"
            if standing.drift
            else f"{alone}, which would not decide it"
        )
        return f"{first}, {100 * anchor.confidence:.3g} % interval), {wanted(standing)}; {drift}"
    sentence = f"step_time is {now}, {_ratio(standing, past)}, {wanted(standing)}"
    if recent is not None and recent.low > bound:
        return sentence
    most = format_ratio(max(OUTRIGHT, bound))
    return f"{sentence}: beyond {most} times {'any of them' if recent else 'that'} it is a regression, however few the runs"


def _causes(value: Value, past: Past, changed: str) -> list[str]:
    lines = [f"  newest recorded: commit {past.newest}"] if past.newest else []
    lines += [*explanation(value), *([f"  changed besides: {changed}"] if changed else [])]
    return lines + ([f"  try: {past.accept}, if the slow-down is meant"] if past.accept else [])


def _undecided(standing: Standing, past: Past) -> str:
    """Why it is not decided, the smallest change that would have been, and what to do."""
    recent, anchor = standing.recent, standing.anchor
    assert standing.spread is not None
    assert standing.smallest is not None
    why = f"runs differ by {format_quantity(standing.spread, RATIO)} from one another"
    if recent is not None and anchor is not None and recent.high < 1 + standing.tolerance:
        why = f"{past.runs} alone would pass, but it is {format_ratio(anchor.ratio)} times {past.anchor} ({_bounds(anchor)})"
    smallest = format_quantity(standing.smallest, RATIO)
    helps = "pytest --tfperf-against REF, which compares in turns; or a larger max_regression"
    return (
        f": {why}; a slow-down of {smallest} would have been found in 9 of 10 cases\n  try: {helps}"
    )


def _bounds(interval: Interval) -> str:
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"


def next_step(what: str) -> str:
    """The line of a message that says what to do, if there is something."""
    return f"\n  try: {what}" if what else ""
