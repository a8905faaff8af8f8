"""
Step times of stored runs, and the comparison with them: verdict, message, figures.

The clock decides where it can. Beside others it often cannot, and then a regression of the
processor time fails, or of the time on an accelerator. They never make a PASS: lost parallelism and
waiting do not show there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pytest_tfperf.baseline.history import CPU
from pytest_tfperf.baseline.store import Place, read_machine, read_times
from pytest_tfperf.checks.limits import explanation, why_disturbed
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.stats.prediction_interval import (
    LEAST_SECONDS,
    OUTRIGHT,
    History,
    HistoryComparison,
    compare_to_history,
)
from pytest_tfperf.stats.signed_rank import Interval
from pytest_tfperf.text import (
    MORE_LESS,
    SLOWER_FASTER,
    Labelled,
    format_slowdown,
    format_slowdowns,
)
from pytest_tfperf.values import Json, Value

_UNDECIDED_HELP = "pytest --tfperf-against REF, which compares in turns; or a larger max_regression"
UPDATE = "record it with pytest --tfperf-update-new (what is missing) or --tfperf-update (all)"
ACCEPT = "pytest --tfperf-update"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingWords:
    """Phrases of messages on a source of step times."""

    name: str
    """Name of the stored runs in a headline: "the baseline"."""
    record: str
    """Way to store a first run."""
    collect: str
    """Way to store more runs."""
    accept: str
    """Way to accept an intended change."""


class Timings(Protocol):
    """A source of earlier step times."""

    @property
    def words(self) -> TimingWords:
        """Phrases of messages on it."""

    def entry(
        self, place: Place, key: str, machine: Mapping[str, Any], workload: Json, tolerance: float
    ) -> Json | None:
        """
        Return the entry of a profile on a machine class as in a timing file, None if it has none.

        Raises BaselineError if the source cannot be read.
        """

    def elsewhere(self, place: Place, key: str) -> Iterator[tuple[Json, Json]]:
        """
        Yield machine class and workload of each entry of a profile, on whatever machine.

        Raises BaselineError if the source cannot be read.
        """


class TimingFiles:
    """The timing files beside the tests; those of this machine are read once."""

    words = TimingWords(
        name="the baseline",
        record=f"{UPDATE} on this machine",
        collect="pytest --tfperf-update again, or tfperf accept RUN.json of runs like this one",
        accept=ACCEPT,
    )

    def __init__(self) -> None:
        self._read: dict[Path, dict[str, Json]] = {}

    def entry(
        self, place: Place, key: str, machine: Mapping[str, Any], workload: Json, tolerance: float
    ) -> Json | None:
        """Return the entry in a timing file: see `Timings`."""
        del workload, tolerance  # the entry was made with them
        path = place.timing_file(machine)
        if path not in self._read:
            self._read[path] = read_times(path)
        return self._read[path].get(place.timing_key(key))

    def elsewhere(self, place: Place, key: str) -> Iterator[tuple[Json, Json]]:
        """Yield machine class and workload of each entry: see `Timings`."""
        name = place.timing_key(key)
        for path in sorted(place.timing.glob("*.json")) if place.timing.is_dir() else []:
            with suppress(BaselineError):  # a file of another machine decides nothing here
                entry = read_times(path).get(name)
                if entry is not None:
                    yield read_machine(path), entry["workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns:
    """The stored runs that a time is compared with, as messages name them."""

    history: History
    metric: str = "step_time"
    """The time."""
    moved: float = 1.0
    """What other load may have moved the new time by, either way."""
    name: str
    """Name of the stored runs in a headline: "the baseline"."""
    runs: str
    """Name of the latest runs in a sentence: "the last 10 runs"."""
    anchor: str = ""
    """Name of the first runs in a sentence: "the first 5 runs, from commit abc on"."""
    newest: str = ""
    """Commit of the latest run."""
    commits: tuple[str, ...] = ()
    """Commit of each run of the history, if they are known; empty for one outside git."""
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
    sentence: str
    metric: str = "step_time"
    """The time that decides."""
    why: str = ""
    """Reason why it is not decided; empty if it is."""
    details: tuple[Labelled, ...] = ()
    advice: tuple[Labelled, ...] = ()
    detail: Json = field(default_factory=dict)

    @property
    def reason(self) -> Json:
        """Why it is not decided, as a detail of its check."""
        return {"why": self.why} if self.why else {}


def judge(
    value: Value,
    stored: StoredRuns,
    tolerance: float,
    why_not: str | None,
    changed: str,
    least: float | None = None,
) -> Judgement:
    """
    Decide on a known time of a step; with `why_not` it is no valid sample.

    `least` is the least that the step may have taken without others; None if nothing disturbed it.
    """
    assert value.number is not None
    result = compare_to_history(value.number, stored.history, tolerance, least)
    found = _judged(value, result, stored, why_not, changed)
    detail = _figures(value.number, result, stored) | found.reason
    return replace(found, metric=stored.metric, detail=detail)


def with_steady_time(
    clock: Judgement,
    profile: Profile,
    stored: StoredRuns,
    tolerance: float,
    changed: str,
    is_busy: bool,
) -> Judgement:
    """
    Let a time that load hardly moves decide where the clock does not, and show it where it does.

    `is_busy` says that others used the machine, so that the clock may not decide.
    """
    value = profile.metrics.get(stored.metric)
    is_open = clock.verdict is Verdict.INCONCLUSIVE
    if value is None or not value.number or not stored.history.runs:
        missing = (value.why if value is not None else None) or "the baseline has none yet"
        says_so = is_open and is_busy and stored.metric == CPU  # CPUs have no device time
        return beside_clock(clock, stored.metric, missing if says_so else "")
    found = judge(value, stored, tolerance, None, changed, value.number / stored.moved)
    return either_time(clock, found, is_busy)


def either_time(clock: Judgement, found: Judgement, is_busy: bool) -> Judgement:
    """Let a REGRESSION of the processor time stand for a clock that does not decide."""
    is_open = clock.verdict is Verdict.INCONCLUSIVE
    if found.verdict is not Verdict.REGRESSION:
        is_good = found.verdict in (Verdict.PASS, Verdict.IMPROVED)
        also = ": it shows no regression" if is_good else "; it does not decide either"
        shown = found.sentence + also
        return beside_clock(clock, found.metric, shown if is_open and is_busy else "")
    if is_open:
        undecided = ("the clock", f"does not decide: {clock.sentence}")
        return replace(found, details=(*found.details, undecided))
    gates = "" if clock.verdict is Verdict.REGRESSION else "; it does not gate beside the clock"
    return beside_clock(clock, found.metric, f"{found.sentence}{gates}")


def beside_clock(clock: Judgement, metric: str, text: str) -> Judgement:
    """Add what another time of the step shows to the clock's judgement."""
    label = "processor time" if metric == CPU else "device time"
    more = ((label, text),) if text else ()
    return replace(clock, details=(*clock.details, *more))


def _judged(
    value: Value,
    result: HistoryComparison,
    stored: StoredRuns,
    why_not: str | None,
    changed: str,
) -> Judgement:
    """Return the verdict and its message."""
    verdict = result.verdict
    if why_not is not None:
        sentence = f"{_found(value, result, stored)}: {why_not}"
        return Judgement(verdict=Verdict.INCONCLUSIVE, sentence=sentence, why=why_not)
    if verdict is Verdict.REGRESSION:
        return _regression(value, result, stored, changed)
    details, why = tuple(_details(result, stored)), ""
    if result.recent is None:
        why = stored.few
        sentence = f"{_found(value, result, stored)}; {why}"
        advice = next_step(stored.collect)
    elif verdict is Verdict.PASS:
        sentence, advice = f"{_found(value, result, stored)}, {_limit(result)}", ()
    elif verdict is Verdict.IMPROVED:
        sentence = _found(value, result, stored)
        advice = next_step(stored.accept and f"{stored.accept}, to hold it from now on")
    else:
        why = _why_undecided(result, stored)
        sentence = f"{_found(value, result, stored)}, {_limit(result)}; {why}"
        advice = next_step(_UNDECIDED_HELP)
    return Judgement(verdict=verdict, sentence=sentence, why=why, details=details, advice=advice)


def _figures(now_s: float, result: HistoryComparison, stored: StoredRuns) -> Json:
    """Return the numbers of a step time and its stored runs for reports: see `results.Check`."""
    bounds, history = result.recent, stored.history
    shown: Json = {"before": result.typical_s, "after": now_s, "ratio": result.ratio}
    if bounds is not None:
        shown |= {"low": bounds.low, "high": bounds.high, "confidence": bounds.confidence}
    return shown | {
        "smallest": result.minimum_detectable_change,
        "tolerance": result.requested_tolerance,
        "runs": list(history.runs),
        "commits": list(stored.commits),
        "anchor": history.anchor,
    }


def why_not_timed(profile: Profile, shared_cpu: bool) -> str | None:
    """Return why a known step time is not a valid sample of the step, or None."""
    disturbed = why_disturbed(profile, shared_cpu)
    if disturbed is not None:
        return disturbed
    settled = profile.value("step_time").detail.get("settled", False)
    return None if settled else "the input buffers were still draining"


def why_not_recorded(profile: Profile, shared_cpu: bool) -> str | None:
    """Return why later runs are not compared with a known step time, or None."""
    load = profile.metrics.get("other_load")
    is_known = load is not None and load.number is not None  # and is stored with the time
    why = why_not_timed(profile, shared_cpu and not is_known)
    if why is not None or is_known or not profile.interference:
        return why
    found = "; ".join(remark.partition(": ")[0] for remark in profile.interference)
    return f"{found}; run on a quiet machine"


def next_step(text: str) -> tuple[Labelled, ...]:
    """Advice of one line, or none where the text is empty."""
    return (("try", text),) if text else ()


def _found(value: Value, result: HistoryComparison, stored: StoredRuns) -> str:
    """Return the change since the stored runs, and both times."""
    assert value.number is not None
    return change_text(result.ratio, stored.name, result.typical_s, value.number, stored.metric)


def change_text(
    ratio: float, name: str, before_s: float, now_s: float, metric: str = "step_time"
) -> str:
    """Write a change of a time of the step since what has a name, and both times."""
    times = [format_quantity(time_s, SECONDS) for time_s in (before_s, now_s)]
    change = format_slowdown(ratio, change_words(metric))
    return f"{metric} is {change} than {name}: {' to '.join(times)}"


def change_words(metric: str) -> tuple[str, str]:
    """Return the words for a rise and a fall of a time."""
    return SLOWER_FASTER if metric == "step_time" else MORE_LESS


def _limit(result: HistoryComparison) -> str:
    return f"limit {format_quantity(result.tolerance, RATIO)}"


def _details(result: HistoryComparison, stored: StoredRuns) -> Iterator[Labelled]:
    """Say what the change is measured from, and why the tolerance is larger than requested."""
    if result.recent is not None:
        yield "measured", f"{_interval(result.recent, stored)}, against {stored.runs}"
    if result.requested_tolerance < result.tolerance:
        requested = format_quantity(result.requested_tolerance, RATIO)
        least = format_quantity(LEAST_SECONDS, SECONDS)
        yield "limit", f"raised from {requested}: less than {least} a step is never slower"


def _regression(
    value: Value, result: HistoryComparison, stored: StoredRuns, changed: str
) -> Judgement:
    details, advice = explanation(value)
    sentence, reasons = _slower(value, result, stored)
    if stored.newest:
        reasons = (*reasons, ("newest recorded", f"commit {stored.newest}"))
    if changed:
        details = (*details, ("changed besides", changed))
    return Judgement(
        verdict=result.verdict,
        sentence=sentence,
        details=(*details, *reasons),
        advice=(*advice, *((("if intended", stored.accept),) if stored.accept else ())),
    )


def _slower(
    value: Value, result: HistoryComparison, stored: StoredRuns
) -> tuple[str, tuple[Labelled, ...]]:
    """Describe a regression: by the latest runs, by the first ones, or beyond any noise."""
    assert value.number is not None
    bound, recent, anchor = 1 + result.tolerance, result.recent, result.anchor
    found, details = _found(value, result, stored), tuple(_details(result, stored))
    if recent is not None and anchor is not None and recent.low <= bound < anchor.low:
        before_s = value.number / anchor.ratio
        found = change_text(anchor.ratio, stored.anchor, before_s, value.number, stored.metric)
        alone = (
            f"{format_slowdown(recent.ratio, change_words(stored.metric))} than {stored.runs} alone"
        )
        drift = f"{alone}, which would {'pass' if result.drift else 'not decide it'}"
        details = (
            ("measured", f"{_interval(anchor, stored)}, against {stored.anchor}"),
            ("slow drift" if result.drift else "", drift),
            *details[1:],
        )
    elif recent is None or recent.low <= bound:
        most = format_slowdown(max(OUTRIGHT, bound), change_words(stored.metric))
        beyond = f"more than {most} than {'any of them' if recent else stored.runs}"
        details = (*details, ("", f"{beyond} is a regression, however few the runs"))
    return f"{found}, {_limit(result)}", details


def _why_undecided(result: HistoryComparison, stored: StoredRuns) -> str:
    """Return the reason why it is not decided, and the smallest slow-down that would have been."""
    recent, anchor = result.recent, result.anchor
    assert result.run_sd is not None
    assert result.minimum_detectable_change is not None
    why = f"runs differ by {format_quantity(result.run_sd, RATIO)}"
    if recent is not None and anchor is not None and recent.high < 1 + result.tolerance:
        than = f"{format_slowdown(anchor.ratio, change_words(stored.metric))} than {stored.anchor}"
        why = f"{stored.runs} alone would pass, but it is {than}"
    smallest = format_quantity(result.minimum_detectable_change, RATIO)
    return f"{why}, so only a slow-down of {smallest} would show in 9 of 10 cases"


def _interval(of: Interval, stored: StoredRuns) -> str:
    return interval_text(of.low, of.high, of.confidence, stored.metric)


def interval_text(low: float, high: float, confidence: float, metric: str = "step_time") -> str:
    """Write an interval of a change."""
    change = format_slowdowns(low, high, change_words(metric))
    return f"{change} ({100 * confidence:.3g} % interval)"
