"""
Check of all traces of a store against limits, which come from a TOML file.

    max_input_bound = "5%"

    [[rules]]
    match = "*/eval_*/*"
    max_input_bound = "20%"

Limits at the top hold for every trace. Those of a section hold for the traces whose address its
glob matches; they take the place of limits of the same name above.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pytest_tfperf.checks.arguments import Wanted, parse_limit_lines
from pytest_tfperf.checks.limits import Limit, check_limits
from pytest_tfperf.errors import LimitError
from pytest_tfperf.files import open_regular
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.results import BROKEN, WORST_FIRST, Check, Profile, Verdict
from pytest_tfperf.stores.trace_files import run_and_host
from pytest_tfperf.stores.trace_results import METRICS, TraceResults, value_of
from pytest_tfperf.stores.traces import runs_of, skews_of
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json, Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

_SECTIONS, _MATCH = "rules", "match"
_MOST_BYTES = 1_000_000
_SKEW = "step_skew"
_OF_ZERO = 1e9
"""Ratio for a limit of zero, to which the value is added: larger values come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRules:
    """The sections of a file of limits; a later one takes the place of an earlier one."""

    sections: tuple[tuple[str, Mapping[str, str]], ...]
    """
    Glob of addresses, and limits by the name of the marker's argument.

    `*` is for any characters, slashes too. The limits at the top come first and are of every trace.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that have a limit."""
        found = (
            limit.metric.name
            for _, section in self.sections
            for limit in Wanted.read(section).limits
        )
        return tuple(dict.fromkeys(found))

    def limits_of(self, name: str) -> tuple[Limit, ...]:
        """Return the limits of a trace."""
        arguments: dict[str, str] = {}
        for glob, section in self.sections:
            if fnmatchcase(name, glob):
                arguments |= section
        return Wanted.read(arguments).limits

    def unused(self, names: Iterable[str]) -> list[str]:
        """Return the globs that match none of these traces."""
        known = list(names)
        return [
            glob
            for glob, section in self.sections
            if section and not any(fnmatchcase(name, glob) for name in known)
        ]


def read_rules(path: Path) -> LimitRules:
    """Read a file of limits, or raise LimitError if it has something else or none."""
    try:
        with open_regular(path) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise LimitError(f"{path}: at most {_MOST_BYTES / 1e6:.0f} MB are read")
        content = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise LimitError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, TOMLDecodeError
        raise LimitError(f"{path}: not TOML: {' '.join(str(error).split())}") from error
    content = plain_strings(content)
    sections = content.pop(_SECTIONS, [])
    if not isinstance(sections, list) or not all(isinstance(one, dict) for one in sections):
        raise LimitError(f"{path}: write [[rules]], with two brackets, above each section")
    found = [
        ("*", _arguments(content, str(path))),
        *(_section(one, f"{path}: rule {n}") for n, one in enumerate(sections, 1)),
    ]
    if not any(section for _, section in found):
        raise LimitError(f'{path}: no limit; write some, such as max_input_bound = "5%"')
    return LimitRules(sections=tuple(found))


def _section(content: Mapping[str, Any], where: str) -> tuple[str, dict[str, str]]:
    glob = content.get(_MATCH)
    if not isinstance(glob, str) or not glob:
        raise LimitError(f'{where}: give the glob of its traces, such as match = "*/eval_*/*"')
    limits = {name: value for name, value in content.items() if name != _MATCH}
    if not limits:
        raise LimitError(f'{where}: no limit; write some, such as max_input_bound = "5%"')
    return glob, _arguments(limits, where)


def _arguments(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """Read limits by name; errors name their origin."""
    return parse_limit_lines([_line(*one, where) for one in content.items()], where)


def _line(name: str, value: object, where: str) -> str:
    """Return a limit as a line of text, and refuse other values than a number or a text."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, str) or "," in value):
        raise LimitError(f'{where}: {name} needs one number or text, such as "5%", not {value!r}')
    return f"{name} = {value}"


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


def check_store(store: TraceResults, rules: LimitRules) -> FleetChecks:
    """Check the newest state of every trace of a store, or raise StoreError if it has none."""
    index = store.index()
    traces, unread = store.traces(index)
    analysed = {
        trace["trace"]: trace["sha256"] for trace in traces if trace["sha256"] in index.analysed
    }
    values, more = _values(store, set(analysed.values()), rules.metrics)
    skews = _skews(store, analysed) if _SKEW in rules.metrics else {}
    found = []
    for trace in traces:
        name, known = trace["trace"], values.get(trace["sha256"])
        if known is None:
            why = trace["why"] or "its result cannot be read"
            found.append(TraceChecks(name=name, checks=(), why=why))
            continue
        skew = {_SKEW: skews[name]} if name in skews else {}
        found.append(_checked(name, {**known, **skew}, rules))
    # broken limits first, and of these the farthest from its limit
    found.sort(key=lambda one: (WORST_FIRST.index(one.verdict), -one.excess, one.name))
    return FleetChecks(traces=tuple(found), unread=(*unread, *more))


def _checked(name: str, values: Mapping[str, Value], rules: LimitRules) -> TraceChecks:
    """Check one trace, whose values are by metric."""
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


def _excess(check: Check, value: Value) -> float:
    """Return the ratio of a value to its limit, or the reverse: above 1 if it is broken."""
    if value.number is None:
        return 0.0
    bound, relation = float(check.detail["bound"]), check.detail["relation"]
    pairs = {"max": (value.high(), bound), "min": (bound, value.low())}
    ends = (bound, value.high()) if value.high() > bound else (value.low(), bound)
    over, under = pairs.get(relation, (max(ends), min(ends)))
    return over / under if under > 0 else _OF_ZERO + over


def _values(
    store: TraceResults, contents: Iterable[str], metrics: Sequence[str]
) -> tuple[dict[str, dict[str, Value]], tuple[str, ...]]:
    """Return values by metric for each content, and sentences on damaged objects."""
    rows, unread = store.rows(METRICS, sorted(contents), metrics=metrics)
    found: dict[str, dict[str, Value]] = {}
    wrong = []
    for row in rows:
        try:
            found.setdefault(row["sha256"], {})[row["metric"]] = value_of(row)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            wrong.append(f"{row['metric']} of {row['trace']} is left out: {error}")
    return found, (*unread, *wrong)


def _skews(store: TraceResults, contents: Mapping[str, str]) -> dict[str, Value]:
    """Return the skew between hosts, for each trace of a run that has several."""
    skews = skews_of(store, runs_of(contents))
    runs = {name: run_and_host(name)[0] for name in contents}
    return {name: skews[run] for name, run in runs.items() if run in skews}
