"""
Results of a run as frozen values, and their JSON.

Analyses make `Profile`, `Check`, `ProfiledTest` and `Run`; reports and stores take them. Their
`to_json` gives only plain JSON values, and `from_json` checks the types of all that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metric_registry import METRICS, Metric, nearest
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.summary import summary
from pytest_tfperf.text import Labelled, plural
from pytest_tfperf.values import (
    OTHER,
    PART_TITLES,
    UNEXPLAINED,
    Advice,
    Json,
    Number,
    Seconds,
    Step,
    Table,
    Value,
    builtin,
)

__tracebackhide__ = True

FORMAT = 2
"""Version of run files and of `--json`."""

INTERFERENCE = "interference"
"""Key in the detail of a step_time: remarks on what else used the machine meanwhile."""


class Verdict(str, Enum):
    """Outcome of a check, the outcomes that need most attention first."""

    FAIL = "FAIL"
    REGRESSION = "REGRESSION"
    UNKNOWN = "UNKNOWN"
    MISSING = "MISSING"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPARABLE = "INCOMPARABLE"
    NEW = "NEW"
    IMPROVED = "IMPROVED"
    PASS = "PASS"


WORST_FIRST = tuple(Verdict)
DECIDED = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.REGRESSION, Verdict.IMPROVED})
BROKEN = frozenset({Verdict.FAIL, Verdict.REGRESSION, Verdict.UNKNOWN, Verdict.MISSING})


Kind = Literal["limit", "baseline", "against", "compare", "profile"]


class _BuiltIn:
    """Types of the built-in metrics; `Profile.__getattr__` reads their numbers."""

    __slots__ = ()

    step_time: float
    step_cpu_time: float
    other_load: float
    step_time_p90: float
    step_time_p99: float
    first_step_time: float
    throughput: float
    epoch_gap: float
    input_bound: float
    input_wait: float
    input_capacity: float
    input_bound_at_target: float
    input_python_stages: int
    host_overhead: float
    device_busy: float
    device_time: float
    collective_time: float
    step_skew: float
    xla_clusters: int
    xla_launches: int
    xla_compiles: int
    xla_compile_time: float
    xla_coverage: float
    fusions: int
    retraces: int
    eager_ops: int
    python_calls: int
    graph_ops: int
    graph_reduction: float
    padding_overhead: float
    mxu_padding_overhead: float
    batch_padding: float
    op_guide_findings: int
    peak_memory: float
    memory_growth: float
    half_precision: float
    flops: float
    flops_utilization: float
    host_device_copies: int
    host_device_bytes: float
    kernel_launches: int
    tensor_core_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(_BuiltIn):
    """
    Measurements of one step, with every metric as an attribute.

    An unknown metric raises `UnknownMetric` with the reason. `value(name)` gives number or reason.
    """

    name: str
    """Name in the test, empty for a test's only profile."""
    steps: tuple[Step, ...] = ()
    """Traced steps."""
    n_dropped: Number = 0
    """Number of events in the trace that look like steps and are not."""
    step_source: str | None = None
    """Source of the steps in the trace, None without steps."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Shapes of the inputs, batch size and the like."""
    notes: tuple[str, ...] = ()
    """Notes for the reader."""
    ended: str | None = None
    """Reason why the windows are not full, None if they are."""
    metrics: Mapping[str, Value]
    """Values by metric."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Tables by key."""
    advice: tuple[Advice, ...] = ()
    """Advice, the largest possible saving first."""
    blocks_s: tuple[Seconds, ...] = ()
    """Time of a step in each timed block, in seconds."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths of kept and exported files, by kind."""
    own: Mapping[str, Metric] = field(default_factory=dict)
    """Custom metrics of the run that measured."""
    result: Any = None
    """Return value of the profiled call; not in JSON."""

    @property
    def interference(self) -> tuple[str, ...]:
        """
        Remarks on what else used the machine while the step time was measured.

        Each is a finding, and advice after a colon.
        """
        value = self.metrics.get("step_time")
        return () if value is None else tuple(value.detail.get(INTERFERENCE, ()))

    @property
    def registry(self) -> Mapping[str, Metric]:
        """Built-in and custom metrics by name."""
        return {**METRICS, **self.own}

    def value(self, metric: str) -> Value:
        """
        Return the number or reason of a metric, with its unit, source and detail.

        Raises:
            UnknownMetric: If there is no metric of that name.
        """
        if metric not in self.metrics:
            raise UnknownMetric(f"no metric {metric!r}; {nearest(metric, self.metrics)}")
        return self.metrics[metric]

    def _number(self, metric: str) -> float:
        if metric not in self.metrics:
            known = f"; {nearest(metric, self.metrics)}" if self.metrics else ""
            raise AttributeError(f"a profile has no {metric!r}{known}")
        value = self.metrics[metric]
        if value.number is None:
            raise UnknownMetric(f"{metric} is unknown: {value.why}")
        return value.number

    def _count(self, metric: str) -> int:
        """Return a whole number; a median of steps that differ may be a fraction, and stays one."""
        number = self._number(metric)
        return int(number) if number.is_integer() else cast("int", number)

    if not TYPE_CHECKING:  # type checkers know the built-in metrics, and find misspelt names

        def __getattr__(self, name: str) -> float:
            """Return the number of a metric."""
            # copy and pickle look for special methods before there are any fields
            if name.startswith("_") or name == "metrics":
                raise AttributeError(f"a profile has no {name!r}")
            value = self.metrics.get(name)
            is_count = value is not None and value.unit == COUNT
            return self._count(name) if is_count else self._number(name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *METRICS, *self.metrics})

    def __str__(self) -> str:
        title = f"{self.name or 'profile'}: {plural(len(self.steps), 'traced step')}"
        return summary(title, self.metrics, self.own)

    def plain(self) -> Profile:
        """
        Return the profile without control characters and changes of text direction in its texts.

        Names of ops, threads and functions come from the trace, and so from its author.
        """
        return Profile.from_json(plain_strings(self.to_json()))

    def to_json(self) -> Json:
        """Return the object that `tfperf --json` and run files hold for a profile."""
        data: Json = builtin(replace(self, result=None))
        del data["result"]
        return data

    @classmethod
    def from_json(cls, data: Json) -> Profile:
        """Invert `to_json`; `result` is None."""
        return msgspec.convert(data, cls)


def part_title(part: str, profile: Profile) -> str:
    """Return the title of a part; time that the trace cannot explain has one of its own."""
    overhead = profile.metrics.get("host_overhead")
    unknown = overhead is None or overhead.number is None
    return UNEXPLAINED if part == OTHER and unknown else PART_TITLES.get(part, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One limit or comparison, decided or not."""

    profile: str
    """Name of the profile, empty for a test's only one."""
    metric: str
    """The metric, or what else the check is about."""
    kind: Kind
    """`limit`, `baseline`, `against`, `compare` or `profile`."""
    verdict: Verdict
    """Verdict of the check."""
    wanted: str
    """The limit or reference, for people."""
    sentence: str
    """The headline: what was found, and what was wanted."""
    details: tuple[Labelled, ...] = ()
    """Causes and circumstances, as in `("where", "90 % in Map")`."""
    advice: tuple[Labelled, ...] = ()
    """What to do: `("try", ...)`, `("if intended", ...)`."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """
    Numbers for reports, in the metric's unit: `relation` (`max`, `min`, `equal`) and `bound` of a
    limit, `before` and `after` of a comparison.

    A step time also has `ratio`, `low`, `high`, `confidence`, `smallest` and samples: `runs` and
    `anchor`, or `turns`, pairs of after and before. `second` is the time in a second process, and
    `differences` are those of the traces, `{"what", "seconds"}`. `gates` is false of a change that
    is shown and not decided. `why` is the reason for which a value is unknown, or a time is not
    decided. A comparison with a git ref has `process_pairs` (`ratio`, `n` pairs of turns,
    `spent_s`, `waited_s`) and the assumed `process_sd` with its `process_sd_source`.
    `unasked` is true of a time that the baseline could not decide and the test does not limit;
    `ref` is the git ref to compare it with.
    """
    follows: str = ""
    """
    The metric of the same profile whose message names this check, since it has the same cause.

    It is empty for a check with a message of its own.
    """

    @property
    def message(self) -> str:
        """The whole text: the sentence, then details and advice, an indented line each."""
        return "\n".join([self.sentence, *(f"  {line}" for line in self.lines)])

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below the sentence."""
        return tuple(
            f"{label}: {text}" if label else text for label, text in (*self.details, *self.advice)
        )

    @property
    def is_shown_change(self) -> bool:
        """True for a change that a better program may make too, so that it fails nothing."""
        return self.detail.get("gates") is False

    @property
    def is_unasked(self) -> bool:
        """True for an undecided time that nobody limits, and that the baseline cannot decide."""
        return self.detail.get("unasked") is True

    @property
    def word(self) -> str:
        """The verdict in reports for people; of what decides nothing in lower case."""
        if self.is_unasked:
            return "not decided"
        return "changed" if self.is_shown_change else self.verdict.value

    @property
    def ratio(self) -> float | None:
        """The value after ÷ before, of a comparison that has both."""
        before, after, ratio = (self.detail.get(name) for name in ("before", "after", "ratio"))
        if ratio:
            return float(ratio)
        return float(after / before) if before and after is not None else None

    @property
    def is_of_step_time(self) -> bool:
        """True for a comparison of the step time, or of the processor or device time of a step."""
        times = ("step_time", "step_cpu_time", "device_time")
        return self.metric in times and self.kind != "limit"

    def with_details(self, *details: Labelled) -> Check:
        """Return the check with further details."""
        return replace(self, details=(*self.details, *details))

    def to_json(self) -> Json:
        """Return all fields, and the whole text as `message`."""
        data = {**builtin(self), "message": self.message}
        if not self.follows:
            del data["follows"]
        return data


def asked_ones(checks: Iterable[Check]) -> list[Check]:
    """Return checks without undecided times that nobody limits, unless there are no others."""
    checks = list(checks)
    return [check for check in checks if not check.is_unasked] or checks


def undecided_times(checks: Iterable[Iterable[Check]]) -> str:
    """Say in how many tests a time is not decided that nobody limits; empty if there is none."""
    found = [next((one for one in test if one.is_unasked), None) for test in checks]
    unasked = [check for check in found if check is not None]
    if not unasked:
        return ""
    them = "it" if len(unasked) == 1 else "them"
    return (
        f"times: not decided in {plural(len(unasked), 'test')}; "
        f"`--tfperf-against {unasked[0].detail.get('ref') or 'REF'}` compares {them} here"
    )


def most_telling_first(checks: Iterable[Check]) -> list[Check]:
    """Sort checks: limits, then step times, then other metrics by the size of their change."""
    return sorted(checks, key=_rank)


Tone = Literal["bad", "open", "good"]


def tone_of(verdicts: Iterable[Verdict]) -> Tone:
    """Return whether one of some verdicts fails a test, or else is not decided."""
    found = set(verdicts)
    return "bad" if found & BROKEN else "open" if found - DECIDED else "good"


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """Sort checks by their verdicts, and equal ones with the most telling first."""
    return sorted(most_telling_first(checks), key=lambda check: WORST_FIRST.index(check.verdict))


def without_praise(checks: Iterable[Check]) -> list[Check]:
    """
    Return checks in which no metric is IMPROVED of a profile that got worse by another one.

    A lost compilation leaves fewer ops in the graph, for example, as lost half precision does. A
    comparison that is UNKNOWN may hide what got worse.
    """
    checks, worse = list(checks), dict[str, str]()
    compared = [check for check in checks if check.kind != "limit"]
    for is_worse, words in (
        (lambda check: check.verdict is Verdict.UNKNOWN, "is unknown"),
        (_is_lost_share, "fell"),
        (lambda check: check.verdict is Verdict.REGRESSION, "got worse"),
    ):
        worse |= {one.profile: f"{one.metric} {words}" for one in compared if is_worse(one)}
    return [
        replace(
            check,
            verdict=Verdict.PASS,
            sentence=f"{check.sentence}: changed, and not improved, since {worse[check.profile]}",
            advice=(),
            detail={**check.detail, "gates": False},
        )
        if check.verdict is Verdict.IMPROVED and check.profile in worse
        else check
        for check in checks
    ]


def _is_lost_share(check: Check) -> bool:
    """Return whether less of a step's work is compiled, or done in half precision."""
    if check.metric not in ("xla_coverage", "half_precision"):
        return False
    before, after = check.detail.get("before"), check.detail.get("after")
    return before is not None and after is not None and bool(after < before)


def _rank(check: Check) -> tuple[bool, bool, float]:
    before, ratio = check.detail.get("before"), check.ratio
    if before is None or check.detail.get("after") is None:
        size = 0.0
    else:
        size = abs(math.log(ratio)) if ratio and ratio > 0 else math.inf
    return check.kind != "limit", not check.is_of_step_time, -size
