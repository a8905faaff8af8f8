"""One message for one cause: which broken checks of a profile follow from which others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from pytest_tfperf.checks.limits import broken_words
from pytest_tfperf.function_traces import TRACED_AGAIN
from pytest_tfperf.metric_evidence import STEP_TIMES
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.op_types import LONGEST_OP_S, computes
from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.results import BROKEN, Check, Profile, Verdict, most_telling_first
from pytest_tfperf.text import Labelled
from pytest_tfperf.values import COUNTED_BY, OTHER, PARTS, Value

__tracebackhide__ = True

MOVED_OUT = "moved_out"
"""Detail of a comparison: the ops by type that XLA compiled before, and that run outside it now."""
ADDED = "added"
"""Detail of a comparison: what a count rose by, by op type, or by package of Python functions."""
_FRAMEWORKS = frozenset({"jax", "jaxlib", "keras", "numpy", "tensorflow", "tf_keras"})
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")
_MOST = 0.5
"""Share from which on one part of a change is its cause."""
_LONGEST_CALL_S = 1e-5
"""Seconds of Python's own work in a call at most; an empty one takes some 0.1 µs."""
_REFERENCES = {
    "baseline": "in the baseline",
    "against": "on the ref",
    "compare": "in the first file",
}


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two broken checks of one profile, of which the second may follow from the first."""

    profile: Profile
    root: str
    """Metric of the first."""
    checks: Mapping[str, Sequence[Check]]
    """Checks of the profile by metric, the most telling first."""
    metric: str
    """Metric of the second."""

    def value(self, metric: str) -> Value:
        return self.profile.metrics.get(metric) or Value(number=None, unit=COUNT)

    def names(self, metric: str) -> frozenset[str]:
        """Return the functions or op types that a count is of, as XLA's modules have them."""
        found = self.value(metric).detail.get(COUNTED_BY, ())
        return frozenset(_NO_LETTER.sub("", name.removeprefix("jit_")) for name in found)

    def fact(self, metric: str, key: str) -> Any:
        """Return a fact from the checks of a metric, None if none has it."""
        found = (check.detail.get(key) for check in self.checks.get(metric, ()))
        return next((one for one in found if one), None)

    def added(self, metric: str) -> Mapping[str, float]:
        return self.fact(metric, ADDED) or {}

    def part(self) -> str | None:
        """Return the part of the step that grew most, or is the largest; None without a trace."""
        steps = self.profile.steps
        if not steps:
            return None
        before = self.fact("step_time", "parts_before") or {}
        mean_s = {
            part: sum(step.parts_s.get(part, 0.0) for step in steps) / len(steps)
            - before.get(part, 0.0)
            for part in PARTS
        }
        part = max(PARTS, key=lambda one: mean_s[one])
        return part if mean_s[part] > 0 else None

    def fills_python(self, longest_s: float) -> bool:
        """Return whether what the first counts may take most of the largest part, Python's."""
        steps = self.profile.steps
        if self.part() != OTHER:
            return False
        mean_s = sum(step.parts_s.get(OTHER, 0.0) for step in steps) / len(steps)
        return (self.value(self.root).number or 0.0) * longest_s >= _MOST * mean_s


def _always(_: _Pair) -> bool:
    return True


def _of_the_same_functions(pair: _Pair) -> bool:
    names = pair.names(pair.metric)
    return bool(names) and names <= pair.names(pair.root) | {""}


def _of_its_functions_alone(pair: _Pair) -> bool:
    """Tell copies of arguments of the functions that run eagerly from others."""
    return bool(names := pair.names("host_device_copies")) and names <= pair.names(pair.root)


def _eager_outside(pair: _Pair) -> bool:
    """Tell whether all that is outside XLA runs eagerly."""
    outside = frozenset(filter(computes, pair.value("xla_coverage").detail.get("outside") or ()))
    return bool(outside) and outside <= pair.names("eager_ops")


def _in_framework(pair: _Pair) -> bool:
    """Tell calls within the framework, which traces or calls ops, from the project's own."""
    added = pair.added("python_calls")
    own = sum(calls for package, calls in added.items() if package in _FRAMEWORKS)
    return bool(added) and own >= _MOST * sum(added.values())


def _constants(pair: _Pair) -> bool:
    """Tell the constant that a Python value becomes in each graph from other ops."""
    return bool(added := pair.added("graph_ops")) and added.keys() == {"Const"}


def _stopped(pair: _Pair) -> bool:
    """Tell a value that is unknown since the profile ended, as each step was traced again."""
    ended = pair.profile.ended or ""
    is_unknown = pair.value(pair.metric).number is None
    return is_unknown and ended.endswith(TRACED_AGAIN)


def _in_most_steps(pair: _Pair) -> bool:
    """Tell traces of most steps, which are in the window of the memory too, from a few."""
    count = pair.value(pair.root)
    return (count.number or 0) >= _MOST * float(count.detail.get("n_steps", math.inf))


def _of_wide_inputs(pair: _Pair) -> bool:
    return bool(pair.fact(pair.root, "dtypes"))


def _python_stage(pair: _Pair) -> bool:
    return "runs Python" in str(pair.value("input_bound").detail.get("where", ""))


def _part_is(*parts: str) -> Callable[[_Pair], bool]:
    return lambda pair: pair.part() in parts


def _computes_more(pair: _Pair) -> bool:
    """Tell computing that grew most, by no more than twice as much as the FLOPs."""
    rise = max((check.ratio or 0.0 for check in pair.checks[pair.root]), default=0.0)
    slower = next((check.ratio for check in pair.checks[pair.metric] if check.ratio), None)
    if not _part_is("host_compute", "device_compute")(pair) or rise <= 1:
        return False
    return slower is None or math.log(rise) >= _MOST * abs(math.log(slower))


def _traces(pair: _Pair) -> bool:
    share = float(pair.value(pair.root).detail.get("expensive_share", 0.0))
    return pair.part() == "compile" or (pair.part() == OTHER and share >= _MOST)


def _runs_eagerly(pair: _Pair) -> bool:
    share = float(pair.value(pair.root).detail.get("time_share", 0.0))
    return pair.fills_python(LONGEST_OP_S) or (
        pair.part() in (OTHER, "host_compute") and share >= _MOST
    )


def _calls_python(pair: _Pair) -> bool:
    return pair.fills_python(_LONGEST_CALL_S)


def _moved_out_or_unexplained(pair: _Pair) -> bool:
    """Tell ops that left XLA with the first from a second with a cause of its own."""
    has_place = pair.value(pair.metric).detail.get("where")
    return bool(pair.fact(pair.root, MOVED_OUT)) or not has_place


def _outside_now(pair: _Pair) -> bool:
    """Tell ops that XLA compiled before from others that came to the graph."""
    added = set(filter(computes, pair.added("graph_ops")))
    moved = pair.fact(pair.root, MOVED_OUT) or {}
    return bool(added) and added <= moved.keys()


def _computes_outside(pair: _Pair) -> bool:
    """Tell computing that grew most, or is most of a step with most ops outside XLA."""
    if not _part_is("host_compute", "device_compute", "kernel_launch")(pair):
        return False
    coverage = pair.value("xla_coverage").number
    grew = pair.fact("step_time", "parts_before") and pair.fact(pair.root, MOVED_OUT)
    return bool(grew) or (coverage is not None and coverage <= 1 - _MOST)


RULES: tuple[tuple[str, tuple[str, ...], Callable[[_Pair], bool]], ...] = (
    ("baseline", ("half_precision", "peak_memory", "graph_ops"), _of_wide_inputs),
    ("eager_ops", ("retraces", "xla_compiles"), _of_the_same_functions),
    ("eager_ops", ("host_device_copies", "host_device_bytes"), _of_its_functions_alone),
    ("eager_ops", ("xla_coverage",), _eager_outside),
    ("eager_ops", ("python_calls",), _in_framework),
    ("retraces", ("xla_compiles",), _of_the_same_functions),
    ("retraces", ("graph_ops",), _constants),
    ("retraces", ("python_calls",), _in_framework),
    ("retraces", ("memory_growth",), _in_most_steps),
    ("retraces", tuple(METRICS), _stopped),
    ("xla_compiles", ("memory_growth",), _in_most_steps),
    ("xla_compiles", tuple(METRICS), _stopped),
    ("xla_clusters", ("xla_coverage",), _moved_out_or_unexplained),
    ("xla_clusters", ("graph_ops",), _outside_now),
    ("xla_coverage", ("graph_ops",), _outside_now),
    ("host_device_copies", ("host_device_bytes",), _always),
    ("input_python_stages", ("input_bound", "input_wait"), _python_stage),
    ("input_bound", ("input_wait",), _always),
    ("retraces", STEP_TIMES, _traces),
    ("xla_compiles", STEP_TIMES, _part_is("compile")),
    ("xla_clusters", STEP_TIMES, _computes_outside),
    ("xla_coverage", STEP_TIMES, _computes_outside),
    ("eager_ops", (*STEP_TIMES, "host_overhead"), _runs_eagerly),
    ("python_calls", (*STEP_TIMES, "host_overhead"), _calls_python),
    ("host_overhead", STEP_TIMES, _part_is(OTHER)),
    ("input_bound", STEP_TIMES, _part_is("input")),
    ("input_wait", STEP_TIMES, _part_is("input")),
    ("collective_time", STEP_TIMES, _part_is("collective")),
    ("flops", STEP_TIMES, _computes_more),
    ("step_time", STEP_TIMES, _always),
    ("flops", ("device_time",), _computes_more),
    ("step_time", ("device_time",), _part_is("device_compute")),
)
"""
What may follow from what, each with its evidence in the same profile; the first that holds counts.

Each metric stands for its broken check: it fails its limit, or got worse, or is unknown.
"""


def with_causes(checks: Iterable[Check], profiles: Iterable[Profile]) -> list[Check]:
    """Say of each broken check, and further comparison of a metric, which one it follows from."""
    checks, of_name = list(checks), {profile.name: profile for profile in profiles}
    for name in dict.fromkeys(check.profile for check in checks):
        own = [place for place, check in enumerate(checks) if check.profile == name]
        if name in of_name:
            done = _of_profile([checks[place] for place in own], of_name[name])
            for place, check in zip(own, done, strict=True):
                checks[place] = check
    return checks


def causes(checks: Iterable[Check]) -> list[Check]:
    """
    Return checks that no other's message names: limits first, then what explains the step time,
    then what has most consequences.
    """
    checks = list(checks)
    own = {(check.profile, check.metric) for check in checks if not check.follows}
    heads = [check for check in checks if (check.profile, check.follows) not in own]
    following: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        following.setdefault((check.profile, check.follows), []).append(check)

    def size(head: Check) -> tuple[bool, bool, int]:
        named = [] if head.follows else following.get((head.profile, head.metric), [])
        is_of_step_time = head.is_of_step_time or any(one.metric == "step_time" for one in named)
        has_limit = any(check.kind == "limit" for check in (head, *named))
        return not has_limit, not is_of_step_time, -len({check.metric for check in named})

    return sorted(most_telling_first(heads), key=size)


def _of_profile(checks: Sequence[Check], profile: Profile) -> list[Check]:
    broken = {check.metric for check in checks if check.verdict in BROKEN}
    known = BROKEN - {Verdict.UNKNOWN}  # what is unknown causes nothing
    worse = {check.metric for check in checks if check.verdict in known}
    by_metric = {
        metric: most_telling_first(check for check in checks if check.metric == metric)
        for metric in dict.fromkeys(check.metric for check in checks)
    }
    roots = {
        metric: _root(metric, worse, by_metric, profile) if metric in broken else metric
        for metric in by_metric
    }
    done = []
    for check in checks:
        metric, root = check.metric, roots[check.metric]
        first = next((one for one in by_metric[metric] if one.verdict in BROKEN), None)
        if check.verdict not in BROKEN:
            done.append(check)
        elif root != metric or check is not first:
            done.append(replace(check, follows=root))
        else:
            named = [one for one in by_metric if roots[one] == metric != one and one in broken]
            done.append(_naming(check, named, by_metric, profile))
    return [_noted(check, profile) for check in done]


def _noted(check: Check, profile: Profile) -> Check:
    """Return a check with the notes on the value that it decides."""
    value = profile.metrics.get(check.metric)
    return check.with_details(*(("note", note) for note in (value.notes if value else ())))


def _root(
    metric: str, worse: set[str], checks: Mapping[str, Sequence[Check]], profile: Profile
) -> str:
    """Return the metric whose message names that of a metric: often its own."""
    for root, followers, holds in RULES:
        if metric not in followers or root == metric or root not in worse:
            continue
        if holds(_Pair(profile, root, checks, metric)):
            return _root(root, worse, checks, profile)
    return metric


def _naming(
    head: Check,
    named: Sequence[str],
    checks: Mapping[str, Sequence[Check]],
    profile: Profile,
) -> Check:
    """Return a check with what its other comparisons tell, and with what follows from it."""
    others = [one for one in checks[head.metric] if one is not head and one.kind != "limit"]
    before: list[Labelled] = []
    changes: list[Labelled] = []
    advice = list(head.advice)
    for one in others if head.kind == "limit" else ():
        if one.detail.get("before") is not None:
            value = format_quantity(one.detail["before"], _unit(head.metric, profile))
            before.append(("before", f"{value} {_REFERENCES.get(one.kind, '')}".rstrip()))
        if one.verdict in BROKEN:
            changes += takewhile(lambda line: not line[0], one.details)
            advice += [line for line in one.advice if line[0] == "try" and not head.advice]
    known = [_shown(metric, checks[metric], profile) for metric in named]
    unknown = [metric for metric, text in zip(named, known, strict=True) if not text]
    texts = [", ".join(filter(None, known)), f"unknown: {', '.join(unknown)}" if unknown else ""]
    also = [("so also", "; ".join(filter(None, texts)))] if named else []
    return replace(head, details=(*before, *changes, *head.details, *also), advice=tuple(advice))


def _shown(metric: str, checks: Sequence[Check], profile: Profile) -> str:
    """Return `graph_ops 37 → 40 (above the limit of 38)`; empty of an unknown value."""
    value, unit = profile.metrics.get(metric), _unit(metric, profile)
    if value is None or value.number is None:
        return ""
    now = format_quantity(value.number, unit)
    compared = next((c for c in checks if c.detail.get("before") is not None), None)
    broken = [
        broken_words(check.detail["relation"], check.detail["bound"], unit)
        for check in checks
        if check.verdict is Verdict.FAIL and "bound" in check.detail
    ]
    shown = now
    if compared is not None:
        after = compared.detail.get("after")
        before = format_quantity(compared.detail["before"], unit)
        shown = f"{before} → {now if after is None else format_quantity(after, unit)}"
    return f"{metric} {shown}" + (f" ({'; '.join(broken)})" if broken else "")


def _unit(metric: str, profile: Profile) -> str:
    row = profile.registry.get(metric)
    return COUNT if row is None else row.shown_unit
