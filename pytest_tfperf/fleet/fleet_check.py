"""Check of all traces of a store against limits: a line for each that does not keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.fleet.fleet_store import ERRORS, METRICS, FleetStore, SeenTrace, StoreIndex
from pytest_tfperf.fleet.host_alignment import runs_of, skew_of
from pytest_tfperf.fleet.limit_rules import LimitRules
from pytest_tfperf.fleet.trace_files import run_and_host
from pytest_tfperf.fleet.trace_rows import value_of
from pytest_tfperf.results import BROKEN, WORST_FIRST, Check, Profile, Verdict
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json, Value

_SKEW = "step_skew"
_OF_ZERO = 1e9
"""Ratio for a limit of zero, to which the value is added: larger values come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChecks:
    """The checks of one trace."""

    name: str
    """Address of the trace."""
    checks: tuple[Check, ...]
    """Its checks, the worst first."""
    why: str = ""
    """The reason if the trace has no metrics, else empty."""
    excess: float = 0.0
    """Ratio of the worst check's value to its limit; above 1 if it is broken."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; unknown without metrics, since that is no pass."""
        if self.why:
            return Verdict.UNKNOWN
        return min(
            (one.verdict for one in self.checks), key=WORST_FIRST.index, default=Verdict.PASS
        )

    @property
    def is_good(self) -> bool:
        """True if every limit holds."""
        return self.verdict not in BROKEN

    @property
    def is_limited(self) -> bool:
        """False if no limit holds for the trace."""
        return bool(self.checks or self.why)

    @property
    def line(self) -> str:
        """One line: the trace, and its worst check."""
        if self.why:
            return f"{self.name}: {self.verdict.value}: {self.why}"
        if not self.checks:
            return f"{self.name}: no limit holds for it"
        others = sum(one.verdict in BROKEN for one in self.checks[1:])
        where = (text for label, text in self.checks[0].details if label == "where")
        sentence = "; ".join([self.checks[0].sentence, *where])
        more = f"; and {others} more" if others else ""
        return f"{self.name}: {self.verdict.value}: {sentence}{more}"

    def to_json(self) -> Json:
        """Return the trace with its checks."""
        return {
            "trace": self.name,
            "verdict": self.verdict.value,
            "why": self.why,
            "checks": [check.to_json() for check in self.checks],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChecks:
    """The checks of all traces of a store."""

    traces: tuple[TraceChecks, ...]
    """Traces, the worst first."""
    unread: tuple[str, ...]
    """A sentence for each damaged object of the store."""

    def of(self, verdict: Verdict) -> list[TraceChecks]:
        """Return the traces of a verdict that have a limit."""
        return [one for one in self.traces if one.verdict is verdict and one.is_limited]

    @property
    def summary(self) -> str:
        """One line: the number of traces by verdict."""
        facts = [
            (len(self.of(Verdict.FAIL)), "failed"),
            (len(self.of(Verdict.UNKNOWN)), "unknown"),
            (len(self.of(Verdict.PASS)), "passed"),
            (sum(not one.is_limited for one in self.traces), "without a limit"),
        ]
        shown = ", ".join(f"{n} {fact}" for n, fact in facts if n)
        return f"{plural(len(self.traces), 'trace')}: {shown}"


def check_store(store: FleetStore, rules: LimitRules) -> FleetChecks:
    """
    Check the newest state of every trace of a store.

    Raises:
        StoreError: If the store cannot be read, or has no result.
    """
    traces, unread = store.seen()
    index = store.index()
    reasons, sentences = _reasons(store, index, traces)
    analysed = {trace.key for trace in traces if trace.key in index.analysed}
    values, more = _values(store, analysed, rules.metrics)
    skews = _skews(store, traces, index) if _SKEW in rules.metrics else {}
    found = []
    for trace in traces:
        known = values.get(trace.key)
        if known is None:
            why = trace.why or reasons.get(trace.key, "its result cannot be read")
            found.append(TraceChecks(name=trace.name, checks=(), why=why))
            continue
        skew = {_SKEW: skews[trace.name]} if trace.name in skews else {}
        found.append(_checked(trace.name, {**known, **skew}, rules))
    return FleetChecks(traces=tuple(sorted(found, key=_rank)), unread=(*unread, *sentences, *more))


def _checked(name: str, values: Mapping[str, Value], rules: LimitRules) -> TraceChecks:
    """
    Check one trace.

    Args:
        name: Its name.
        values: Its values by metric.
        rules: The limits.
    """
    limits = rules.limits_of(name)
    absent = "the version that analysed the trace stored no such value"
    metrics = {
        limit.metric.name: values.get(limit.metric.name, Value.unknown(limit.metric.name, absent))
        for limit in limits
    }
    # a check of the time looks for interference in its value
    metrics.setdefault("step_time", Value.unknown("step_time", absent))
    checks = [
        (WORST_FIRST.index(check.verdict), -_excess(check, metrics[check.metric]), check)
        for check in check_limits(Profile(name=name, metrics=metrics), limits, None, False)
    ]
    checks.sort(key=lambda one: one[:2])
    excess = -checks[0][1] if checks else 0.0
    return TraceChecks(name=name, checks=tuple(one for *_, one in checks), excess=excess)


def _rank(trace: TraceChecks) -> tuple[int, float, str]:
    """Order traces: broken limits first, and of these the farthest from its limit."""
    return WORST_FIRST.index(trace.verdict), -trace.excess, trace.name


def _excess(check: Check, value: Value) -> float:
    """Return the ratio of a value to its limit, or the reverse: above 1 if it is broken."""
    if value.number is None:
        return 0.0
    bound, relation = float(check.detail["bound"]), check.detail["relation"]
    pairs = {"max": (value.high(), bound), "min": (bound, value.low())}
    ends = (bound, value.high()) if value.high() > bound else (value.low(), bound)
    over, under = pairs.get(relation, (max(ends), min(ends)))
    return over / under if under > 0 else _OF_ZERO + over


def _reasons(
    store: FleetStore, index: StoreIndex, traces: Sequence[SeenTrace]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """
    Return the stored reasons of damaged traces, by content, and sentences on damaged objects.

    Args:
        store: The store.
        index: Its objects.
        traces: The traces.
    """
    wanted = {trace.key for trace in traces if trace.key in index.errors}
    rows, unread = store.rows(ERRORS, sorted(wanted))
    return {str(row["sha256"]): str(row["why"]) for row in rows}, unread


def _values(
    store: FleetStore, contents: Iterable[str], metrics: Sequence[str]
) -> tuple[dict[str, dict[str, Value]], tuple[str, ...]]:
    """
    Return values by metric for each content, and sentences on damaged objects.

    Args:
        store: The store.
        contents: The contents.
        metrics: The metrics.
    """
    rows, unread = store.rows(METRICS, sorted(contents), metrics=metrics)
    found: dict[str, dict[str, Value]] = {}
    wrong = []
    for row in rows:
        try:
            found.setdefault(row["sha256"], {})[row["metric"]] = value_of(row)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            wrong.append(f"{row['metric']} of {row['trace']} is left out: {error}")
    return found, (*unread, *wrong)


def _skews(store: FleetStore, traces: Sequence[SeenTrace], index: StoreIndex) -> dict[str, Value]:
    """
    Return the skew between hosts, for each trace of a run that has several.

    Args:
        store: The store.
        traces: The traces.
        index: Objects of the store.
    """
    contents = {trace.name: trace.key for trace in traces if trace.key in index.analysed}
    skews = {run: skew_of(store, hosts) for run, hosts in runs_of(contents).items()}
    runs = {name: run_and_host(name)[0] for name in contents}
    return {name: skews[run] for name, run in runs.items() if run in skews}
