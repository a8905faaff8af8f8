"""The step time of one run compared with stored runs: verdict, message, and figures for reports."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.checks.limits import explanation, why_disturbed
from pytest_tfperf.metrics import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.stats.prediction_interval import (
    LEAST_SECONDS,
    OUTRIGHT,
    History,
    HistoryComparison,
    compare_to_history,
)
from pytest_tfperf.stats.signed_rank import Interval
from pytest_tfperf.text import Labelled, format_ratio
from pytest_tfperf.values import Json, Value

_UNDECIDED_HELP = "pytest --tfperf-against REF, which compares in turns; or a larger max_regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns:
    """The stored runs that a step time is compared with, as messages name them."""

    history: History
    """History of the profile on this machine class."""
    runs: str
    """Name of the latest runs in a sentence: "the last 10 runs"."""
    anchor: str = ""
    """Name of the first runs in a sentence: "the first 5 runs, from commit abc on"."""
    newest: str = ""
    """Commit of the latest run."""
    few: str = ""
    """Reason why fewer than five runs are not decided on."""
    collect: str = ""
    """Way to store more runs, where there is one."""
    accept: str = ""
    """Way to accept an intended change, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Verdict on a step time, and its message: see `results.Check`."""

    verdict: Verdict
    """Verdict on the step time."""
    sentence: str
    """Headline of the message."""
    details: tuple[Labelled, ...] = ()
    """Labelled lines of the message."""
    advice: tuple[Labelled, ...] = ()
    """Labelled remedies."""


def judge(
    value: Value, stored: StoredRuns, tolerance: float, why_not: str | None, changed: str
) -> Judgement:
    """
    Decide on a known step time.

    Args:
        value: The step time.
        stored: The runs that it is compared with.
        tolerance: The slow-down that is tolerated, as a share.
        why_not: Why the time is not a valid sample of the step, or None.
        changed: What else differs from the stored runs; shown with a regression.
    """
    assert value.number is not None
    result = compare_to_history(value.number, stored.history, tolerance)
    verdict = result.verdict
    found = f"step_time is {format_quantity(value.number, SECONDS)}, {_ratio(result, stored)}"
    if why_not is not None:
        return Judgement(verdict=Verdict.INCONCLUSIVE, sentence=f"{found}: {why_not}")
    if verdict is Verdict.REGRESSION:
        return _regression(value, result, stored, changed)
    if result.recent is None:
        return Judgement(
            verdict=verdict, sentence=f"{found}; {stored.few}", advice=next_step(stored.collect)
        )
    found = f"{found}, {wanted(result)}"
    if verdict is Verdict.PASS:
        return Judgement(verdict=verdict, sentence=found)
    if verdict is Verdict.IMPROVED:
        return Judgement(
            verdict=verdict,
            sentence=f"{found}: it is faster",
            advice=next_step(stored.accept and f"{stored.accept}, to hold it from now on"),
        )
    return Judgement(
        verdict=verdict,
        sentence=f"{found}: {_why_undecided(result, stored)}",
        advice=next_step(_UNDECIDED_HELP),
    )


def figures(value: Value, stored: StoredRuns, tolerance: float) -> Json:
    """
    Return the numbers of a step time and its stored runs for reports: see `results.Check`.

    Args:
        value: The known step time.
        stored: The runs that it is compared with.
        tolerance: The slow-down that is tolerated, as a share.
    """
    assert value.number is not None
    result, history = compare_to_history(value.number, stored.history, tolerance), stored.history
    bounds = result.recent
    shown: Json = {"before": result.typical_s, "after": value.number, "ratio": result.ratio}
    if bounds is not None:
        shown |= {"low": bounds.low, "high": bounds.high, "confidence": bounds.confidence}
    return shown | {
        "smallest": result.minimum_detectable_change,
        "runs": list(history.runs),
        "anchor": history.anchor,
    }


def why_not_timed(profile: Profile, shared_cpu: bool) -> str | None:
    """
    Return why a known step time is not a valid sample of the step, or None.

    Args:
        profile: The profile with the step time.
        shared_cpu: Whether other workers may have used the CPU.
    """
    disturbed = why_disturbed(profile, shared_cpu)
    if disturbed is not None:
        return disturbed
    settled = profile.value("step_time").detail.get("settled", False)
    return None if settled else "the input buffers were still draining"


def wanted(result: HistoryComparison) -> str:
    """Return the tolerance, and why it is larger than requested."""
    text = f"wanted at most {format_quantity(result.tolerance, RATIO)} slower"
    if result.requested_tolerance == result.tolerance:
        return text
    requested = format_quantity(result.requested_tolerance, RATIO)
    least = format_quantity(LEAST_SECONDS, SECONDS)
    return f"{text} (raised from {requested}: less than {least} a step is never slower)"


def next_step(text: str) -> tuple[Labelled, ...]:
    """Advice of one line, or none where the text is empty."""
    return (("try", text),) if text else ()


def _ratio(result: HistoryComparison, stored: StoredRuns) -> str:
    typical = format_quantity(result.typical_s, SECONDS)
    text = f"{format_ratio(result.ratio)} times the {typical} of {stored.runs}"
    if result.recent is None:
        return text
    confidence = f"{100 * result.recent.confidence:.3g} % interval"
    return f"{text} ({_bounds(result.recent)}, {confidence})"


def _regression(
    value: Value, result: HistoryComparison, stored: StoredRuns, changed: str
) -> Judgement:
    details, advice = explanation(value)
    if stored.newest:
        details = (("newest recorded", f"commit {stored.newest}"), *details)
    if changed:
        details = (*details, ("changed besides", changed))
    meant = stored.accept and f"{stored.accept}, if the slow-down is meant"
    return Judgement(
        verdict=result.verdict,
        sentence=_slower(value, result, stored),
        details=details,
        advice=(*advice, *next_step(meant)),
    )


def _slower(value: Value, result: HistoryComparison, stored: StoredRuns) -> str:
    """Describe a regression: by the latest runs, by the anchor, or beyond any noise."""
    assert value.number is not None
    now, bound = format_quantity(value.number, SECONDS), 1 + result.tolerance
    recent, anchor = result.recent, result.anchor
    if recent is not None and anchor is not None and recent.low <= bound < anchor.low:
        before = format_quantity(value.number / anchor.ratio, SECONDS)
        times = f"{format_ratio(anchor.ratio)} times the {before} of {stored.anchor}"
        interval = f"{_bounds(anchor)}, {100 * anchor.confidence:.3g} % interval"
        alone = f"to {stored.runs} alone it is {format_ratio(recent.ratio)} ({_bounds(recent)})"
        drift = (
            f"slow drift: {alone}, which would pass"
            if result.drift
            else f"{alone}, which would not decide it"
        )
        return f"step_time is {now}, {times} ({interval}), {wanted(result)}; {drift}"
    sentence = f"step_time is {now}, {_ratio(result, stored)}, {wanted(result)}"
    if recent is not None and recent.low > bound:
        return sentence
    most = format_ratio(max(OUTRIGHT, bound))
    beyond = f"beyond {most} times {'any of them' if recent else 'that'}"
    return f"{sentence}: {beyond} it is a regression, however few the runs"


def _why_undecided(result: HistoryComparison, stored: StoredRuns) -> str:
    """Return the reason why it is not decided, and the smallest slow-down that would have been."""
    recent, anchor = result.recent, result.anchor
    assert result.run_sd is not None
    assert result.minimum_detectable_change is not None
    why = f"runs differ by {format_quantity(result.run_sd, RATIO)} from one another"
    if recent is not None and anchor is not None and recent.high < 1 + result.tolerance:
        times = f"{format_ratio(anchor.ratio)} times {stored.anchor} ({_bounds(anchor)})"
        why = f"{stored.runs} alone would pass, but it is {times}"
    smallest = format_quantity(result.minimum_detectable_change, RATIO)
    return f"{why}; a slow-down of {smallest} would have been found in 9 of 10 cases"


def _bounds(interval: Interval) -> str:
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"
