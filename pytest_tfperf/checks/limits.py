"""Limits on metrics, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from pytest_tfperf.metric_evidence import STEP_TIMES, TOTALS
from pytest_tfperf.metric_registry import LOWER, MACHINE, METRICS, Metric
from pytest_tfperf.quantities import BYTES, SECONDS, SHARE, format_quantity, told_apart
from pytest_tfperf.results import Check, Profile, Verdict, part_title
from pytest_tfperf.text import Labelled
from pytest_tfperf.values import LEFT, MEMORY_CAUSES, PARTS, TIME_CAUSES, Json, Value

__tracebackhide__ = True

STRUCTURAL, TIMING = "structural", "timing"
"""Values of `--tfperf-only`."""
SHARED_CPU = "other workers may have used the CPU; run with -n 0, or --tfperf-only structural"
INSTRUMENTED = "Python was traced meanwhile, by coverage or a debugger; run without (--no-cov)"
DEFAULT_TOLERANCE = 0.05
"""The slow-down that a comparison tolerates by default, as a share."""
LEAST_SHOWN = 2.0
"""Multiple of the tolerance that stored times must show, for a time that no test limits."""
_ALONE, _BESIDE, _MOST_NAMED = 0.15, 0.1, 3
"""Least shares of a time that its largest cause and any other one must have to be named."""
_NEAR = 1.5
"""Times the mean that a percentile is at most, to be explained by the causes of the mean step."""
_PYTHON_BESIDE = 0.03
"""The same of Python, which is told apart by a number of samples, and can be avoided whole."""
_BOUNDS = {"max": "at most", "min": "at least", "equal": "exactly"}
_BROKEN = {"max": "above the limit of", "min": "below the limit of", "equal": "not"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on a metric."""

    metric: Metric
    relation: str
    """`max`, `min` or `equal`."""
    bound: float
    """Bound in the metric's unit."""
    argument: str
    """The argument as the user wrote it."""

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{_BOUNDS[self.relation]} {self.shown}"

    @property
    def named(self) -> str:
        """The limit in a sentence: `limit 5 %`, `limit at least 5 %`."""
        return f"limit {self.shown}" if self.relation == "max" else f"limit {self.wanted}"

    @property
    def shown(self) -> str:
        """The bound with its unit."""
        return format_quantity(self.bound, self.metric.shown_unit)

    def holds(self, value: Value) -> bool:
        """Return whether a known value keeps the limit, in every step."""
        low, high = value.low(), value.high()
        return {
            "max": high <= self.bound,
            "min": low >= self.bound,
            "equal": low == high == self.bound,
        }[self.relation]

    def may_hold(self, value: Value) -> bool:
        """Return whether a known value may keep the limit; of some values only bounds are known."""
        low, high = value.low(), value.high()
        within = {
            "max": low <= self.bound,
            "min": high >= self.bound,
            "equal": low <= self.bound <= high,
        }[self.relation]
        return within if value.detail.get("bounds") else self.holds(value)


def check_limits(
    profile: Profile, limits: Iterable[Limit], only: str | None, shared_cpu: bool
) -> list[Check]:
    """Check a profile's limits but those that `--tfperf-only` leaves out."""
    return [_check(profile, limit, shared_cpu) for limit in limits if asked_for(limit.metric, only)]


_ONLY_WORSE = {
    name: "max" if METRICS[name].better == LOWER else "min"
    for name in (*STEP_TIMES, "first_step_time", "xla_compile_time")
}
"""
What a tracer or other work can only make worse, and the kind of limit that it then still keeps.

Shares and waits are not among them: a slower step leaves its input more time.
"""


def broken_words(relation: str, bound: float, unit: str) -> str:
    """Return how a limit is broken: `above the limit of 5 %`."""
    return f"{_BROKEN[relation]} {format_quantity(bound, unit)}"


def tolerated(max_regression: float | None) -> float:
    """Return the slow-down that a comparison tolerates: what the test says, or the default."""
    return DEFAULT_TOLERANCE if max_regression is None else max_regression


def asked_for(metric: Metric, only: str | None) -> bool:
    """Return whether `--tfperf-only` leaves a metric in."""
    return only is None or (metric.scope == MACHINE) == (only == TIMING)


def _check(profile: Profile, limit: Limit, shared_cpu: bool) -> Check:
    name = limit.metric.name
    value = profile.value(name)
    details: tuple[Labelled, ...] = ()
    advice: tuple[Labelled, ...] = ()
    facts: Json = {}
    if value.number is None:
        verdict, facts = Verdict.UNKNOWN, {"why": value.why}
        sentence = f"{name} is unknown, {_asked(limit)}: {value.why}"
        if profile.ended and value.why == profile.ended:
            details, advice = _why_ended(profile)
    elif (
        limit.metric.scope == MACHINE
        and (why := why_disturbed(profile, shared_cpu, name))
        and not (_ONLY_WORSE.get(name) == limit.relation and limit.holds(value))
    ):
        shown = format_quantity(value.number, limit.metric.shown_unit)
        verdict = Verdict.UNKNOWN
        sentence = f"{name} is {shown}, {_asked(limit)}: {why}"
    elif limit.holds(value):
        verdict = Verdict.PASS
        sentence = f"{name} is {_shown(value, limit)}, {limit.named}"
    elif limit.may_hold(value):
        verdict = Verdict.UNKNOWN
        sentence = f"{name} is {_shown(value, limit)}, {_asked(limit)}"
        details, advice = explanation(value)
    else:
        verdict = Verdict.FAIL
        broken = broken_words(limit.relation, limit.bound, limit.metric.shown_unit)
        sentence = (
            f"{name} is {_shown(value, limit)}, {broken} ({limit.argument}){_exactly(value, limit)}"
        )
        details, advice = explanation(value)
        left = value.detail.get(LEFT)
        if left is not None and limit.relation == "max" and left > limit.bound:
            rest = format_quantity(left, limit.metric.shown_unit)
            details = (*details, ("note", f"that leaves {rest}, which is above the limit"))
        facts = {key: value.detail[key] for key in ("accounted",) if key in value.detail}
        if _is_explained(profile, name, value):
            more, remedies, facts = _causes(profile, limit, value)
            details, advice = (*details, *more), advice or remedies
    return Check(
        profile=profile.name,
        metric=name,
        kind="limit",
        verdict=verdict,
        wanted=limit.wanted,
        sentence=sentence,
        details=details,
        advice=advice,
        detail={"relation": limit.relation, "bound": limit.bound, **facts},
    )


def _asked(limit: Limit) -> str:
    """Return the limit of a value that is not decided, as the user wrote it."""
    return f"{limit.named} ({limit.argument})"


def why_disturbed(profile: Profile, shared_cpu: bool, metric: str = "step_time") -> str | None:
    """
    Return why a timing is unreliable, or None; coverage pauses for timed steps, not the first.
    """
    if shared_cpu:
        return SHARED_CPU
    traced = (profile.value(one).detail.get("instrumented") for one in ("step_time", metric))
    return INSTRUMENTED if any(traced) else None


def _exactly(value: Value, limit: Limit) -> str:
    """Show both numbers in full where rounding makes them look equal."""
    worst = value.high() if limit.relation == "max" else value.low()
    return told_apart(worst, limit.bound, limit.metric.shown_unit)


def explanation(value: Value) -> tuple[tuple[Labelled, ...], tuple[Labelled, ...]]:
    """Return a failed value's details (how many steps, how corrected, from where), and advice."""
    detail = value.detail
    details = [(key, str(detail[key])) for key in ("corrected", "where") if detail.get(key)]
    if "n_epoch_ends" in detail:
        n_steps, n_ends = detail["n_steps"], detail["n_epoch_ends"]
        ended = f"; {detail['ended']}" if detail.get("ended") else ""
        over = f"{n_steps} steps after the first and {n_ends} epoch ends{ended}"
        details.insert(0, ("over", over))
    return tuple(details), (("try", str(detail["try"])),) if detail.get("try") else ()


def _why_ended(profile: Profile) -> tuple[tuple[Labelled, ...], tuple[Labelled, ...]]:
    """Explain windows that ended since each step was traced or compiled anew."""
    counts = (profile.metrics.get(name) for name in TOTALS)
    found = (explanation(count) for count in counts if count is not None and count.number)
    return next(found, ((), ()))


def _is_explained(profile: Profile, name: str, value: Value) -> bool:
    """Return whether a table of causes explains a value: a slow step may differ from the mean."""
    if not name.startswith("step_time_p"):
        return name in ("step_time", "throughput", "first_step_time", "peak_memory")
    mean = profile.metrics.get("step_time")
    return mean is not None and bool(mean.number) and value.high() <= _NEAR * mean.high()


def _causes(
    profile: Profile, limit: Limit, value: Value
) -> tuple[tuple[Labelled, ...], tuple[Labelled, ...], dict[str, float]]:
    """
    Explain a time or memory by its largest cause, and others that are more than noise: lines
    `where`, the remedy of each, and the share of the value that they account for.
    """
    name = limit.metric.name
    of_memory = name == "peak_memory"
    metric = name if name in ("first_step_time", "peak_memory") else "step_time"
    table = profile.tables.get(MEMORY_CAUSES if of_memory else TIME_CAUSES)
    rows = [] if table is None else [row for row in table.records() if row["metric"] == metric]
    least = {"other": _PYTHON_BESIDE}
    named = [
        row
        for row in rows[:_MOST_NAMED]
        if row["share"] >= least.get(str(row.get("part")), _BESIDE)
    ]
    named = named if rows and rows[0]["share"] >= _ALONE else []
    if not named:
        return tuple(_largest_part(profile)) if metric == "step_time" else (), (), {}
    whole, takes = ("memory", "needs") if of_memory else ("time", "takes")
    where = tuple(
        ("where", f"{format_quantity(row['share'], SHARE)} of the {whole}: {row['where']}")
        for row in named
    )
    share = sum(row["share"] for row in named)
    is_sum = limit.metric.unit in (SECONDS, BYTES) and limit.relation == "max"
    told = [str(row["try"] or "") for row in named]
    if not of_memory:  # the remedy of a smaller cause alone would pass for that of the largest
        told = list(takewhile(bool, told))
    remedies = dict.fromkeys(filter(None, told))
    left = value.high() * (1 - share)
    if remedies and is_sum and left > limit.bound:
        rest = format_quantity(left, limit.metric.shown_unit)
        note = f"without all of that it {takes} {rest}, which is above the limit"
        where = (*where, ("note", note))
    return where, tuple(("try", text) for text in remedies), {"accounted": min(share, 1.0)}


def _largest_part(profile: Profile) -> Iterator[Labelled]:
    """Name the part of the traced steps that takes most time and has no known cause, if any."""
    period_s = sum(step.period_s for step in profile.steps)
    sums = {part: sum(step.parts_s.get(part, 0.0) for step in profile.steps) for part in PARTS}
    part = max(PARTS, key=lambda one: sums[one])
    if period_s > 0 and sums[part] > 0:
        share = format_quantity(sums[part] / period_s, SHARE)
        yield "where", f"{part_title(part, profile)}: {share} of the traced step"


def _shown(value: Value, limit: Limit) -> str:
    unit = limit.metric.shown_unit
    assert value.number is not None
    if value.low() == value.high():
        return format_quantity(value.number, unit) + _tpu_of(value)
    low, high = format_quantity(value.low(), unit), format_quantity(value.high(), unit)
    bounds = value.detail.get("bounds")
    if value.detail.get("at_least"):
        return f"at least {low}{_tpu_of(value, (bounds or '') if limit.may_hold(value) else '')}"
    if low == high:  # as they are written
        return f"{low}{_tpu_of(value, bounds or '')}"
    if bounds:
        return f"between {low} and {high}{_tpu_of(value, bounds)}"
    return f"{low} to {high} over {value.detail.get('n_steps', 'the')} steps"


def _tpu_of(value: Value, bounds: str = "") -> str:
    """
    Name a padding value's TPU and origin, and why only bounds are known: ` on a TPU v5e
    (predicted)`, or ` (an array may be freed earlier)`.
    """
    detail = value.detail
    where = f" on a TPU {detail['tpu']}" if "tpu" in detail else ""
    remarks = "; ".join(filter(None, (detail["padding"] if where else "", bounds)))
    return f"{where} ({remarks})" if remarks else where
