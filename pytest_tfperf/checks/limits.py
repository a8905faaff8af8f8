"""Limits: from marker arguments and ini lines to verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_tfperf.metrics import (
    MACHINE,
    Metric,
    format_quantity,
    told_apart,
)
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.values import Value

STRUCTURAL, TIMING = "structural", "timing"
SHARED_CPU = "other workers used the CPU; run without -n"
INSTRUMENTED = "Python was traced meanwhile, by coverage or a debugger; run without (--no-cov)"
DEFAULT_TOLERANCE = 0.05
"""The slow-down that is tolerated in a comparison of tests that name none."""
_BOUNDS = {"max": "at most", "min": "at least", "equal": "exactly"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on a metric: `relation` is max, min or equal; `argument` the name it was given under."""

    metric: Metric
    relation: str
    bound: float
    argument: str

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{_BOUNDS[self.relation]} {format_quantity(self.bound, self.metric.unit)}"

    def holds(self, value: Value) -> bool:
        """Whether a known value keeps to it; where steps differ every one of them must."""
        low, high = value.low(), value.high()
        return {
            "max": high <= self.bound,
            "min": low >= self.bound,
            "equal": low == high == self.bound,
        }[self.relation]

    def may_hold(self, value: Value) -> bool:
        """Whether a known value keeps to it for all that is known: of one of which `bounds` alone are, any in between may be true."""
        low, high = value.low(), value.high()
        within = {
            "max": low <= self.bound,
            "min": high >= self.bound,
            "equal": low <= self.bound <= high,
        }[self.relation]
        return within if value.detail.get("bounds") else self.holds(value)


def check_limits(
    profile: Profile, limits: Iterable[Limit], only: str | None, parallel: bool
) -> list[Check]:
    """
    The verdict on each limit that is asked for under `--tfperf-only`; `parallel` says that other tests used the CPU meanwhile.
    """
    return [_check(profile, limit, parallel) for limit in limits if asked_for(limit.metric, only)]


def asked_for(metric: Metric, only: str | None) -> bool:
    """Whether `--tfperf-only` leaves a metric in."""
    return only is None or (metric.scope == MACHINE) == (only == TIMING)


def _check(profile: Profile, limit: Limit, parallel: bool) -> Check:
    value = profile.value(limit.metric.name)
    if value.number is None:
        verdict, message = (
            Verdict.UNKNOWN,
            f"{limit.metric.name} is unknown, wanted {limit.wanted} ({limit.argument}): {value.why}",
        )
    elif limit.metric.scope == MACHINE and (why := why_disturbed(profile, parallel)):
        shown = format_quantity(value.number, limit.metric.unit)
        verdict = Verdict.INCONCLUSIVE
        message = (
            f"{limit.metric.name} was {shown}, wanted {limit.wanted} ({limit.argument}): {why}"
        )
    elif limit.holds(value):
        verdict, message = (
            Verdict.PASS,
            f"{limit.metric.name} {_shown(value, limit)}, wanted {limit.wanted}",
        )
    elif limit.may_hold(value):
        verdict, message = Verdict.INCONCLUSIVE, _failure(value, limit)
    else:
        verdict, message = Verdict.FAIL, _failure(value, limit)
    return Check(
        profile=profile.name,
        metric=limit.metric.name,
        kind="limit",
        verdict=verdict,
        wanted=limit.wanted,
        message=message,
    )


def why_disturbed(profile: Profile, shared_cpu: bool) -> str | None:
    """What took time besides the step while it was timed; None where nothing is known to. `shared_cpu`: other workers used the CPU."""
    if shared_cpu:
        return SHARED_CPU
    return INSTRUMENTED if profile.value("step_time").detail.get("instrumented") else None


def _failure(value: Value, limit: Limit) -> str:
    """Measured value and limit in one sentence, then where it comes from and what to try."""
    exactly = told_apart(
        value.high() if limit.relation == "max" else value.low(), limit.bound, limit.metric.unit
    )
    sentence = f"{limit.metric.name} was {_shown(value, limit)}, wanted {limit.wanted} ({limit.argument}){exactly}"
    return "\n".join([sentence, *explanation(value)])


def explanation(value: Value) -> list[str]:
    """The lines below a failure: over how many steps, how it was corrected, where it comes from, what to try."""
    detail = value.detail
    lines = []
    if "n_epoch_ends" in detail:
        lines.append(
            f"over: {detail['n_steps']} steps after the first and {detail['n_epoch_ends']} epoch ends"
        )
    lines += [f"{key}: {detail[key]}" for key in ("corrected", "where", "try") if detail.get(key)]
    return [f"  {line}" for line in lines]


def _shown(value: Value, limit: Limit) -> str:
    unit = limit.metric.unit
    assert value.number is not None
    if value.low() == value.high():
        return format_quantity(value.number, unit) + _tpu_of(value)
    low, high = format_quantity(value.low(), unit), format_quantity(value.high(), unit)
    if value.detail.get("bounds"):
        return f"between {low} and {high}{_tpu_of(value)} ({value.detail['bounds']})"
    return f"{low} to {high} over {value.detail.get('n_steps', 'the')} steps"


def _tpu_of(value: Value) -> str:
    """For which TPU a value of padding holds, and whether that is measured: ` on a TPU v5e (predicted)`."""
    return (
        f" on a TPU {value.detail['tpu']} ({value.detail['padding']})"
        if "tpu" in value.detail
        else ""
    )
