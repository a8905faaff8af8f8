"""
Advise what to do next about a profile, in the order of the time that it could save.

The thresholds from which a rule speaks are those of `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.by_framework import (
    CONSTANT,
    FETCH_LESS,
    FULL,
    GROWS,
    HALVE,
    KEEP_IN_PLACE,
    LAUNCH_LESS,
    PIECES,
    REDUCE_LESS,
    text_for,
)
from pytest_tfperf.advice.changes import PREFETCH
from pytest_tfperf.advice.thresholds import THRESHOLDS, Thresholds
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.metric_evidence import TOTALS
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.flops import ON_CPU
from pytest_tfperf.metrics.kernels import NO_TENSOR_CORES, NO_TF32
from pytest_tfperf.quantities import BYTES, SHARE, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Advice, Value

_NANOSECONDS = 9
"""Digits of a saving; further ones differ between two ways of adding the same times up."""
_ACCELERATORS = ("GPU", "TPU")
"""Starts of the names of allocators whose capacity is a device's memory."""
_EXPORT = "the timeline: tfperf export TRACE -o trace.json, in ui.perfetto.dev"


@dataclass(frozen=True, slots=True)
class _Case:
    """A profile of traced steps, the framework that ran them, and the limits of the rules."""

    profile: Profile
    framework: str
    at: Thresholds

    def value(self, metric: str) -> Value:
        return self.profile.value(metric)

    def seconds(self, share: float | None) -> float:
        """Return a share of the mean period of the steps, in seconds."""
        steps = self.profile.steps
        return (share or 0.0) * sum(step.period_s for step in steps) / len(steps)

    def share(self, part: str) -> float:
        steps = self.profile.steps
        period = sum(step.period_s for step in steps)
        return sum(step.parts_s[part] for step in steps) / period if period else 0.0

    def said(self, metric: str, with_place: bool = False) -> str:
        """Return the value of a known metric in words."""
        value = self.value(metric)
        assert value.number is not None
        place = f": {value.detail['where']}" if with_place and value.detail.get("where") else ""
        return f"{metric} is {format_quantity(value.number, METRICS[metric].shown_unit)}{place}"


_Rule = Callable[[_Case], Iterable[Advice]]


def advise(
    profile: Profile, framework: str = TENSORFLOW, thresholds: Thresholds = THRESHOLDS
) -> tuple[Advice, ...]:
    """Return advice on traced steps, by saving, with the means of the framework that ran them."""
    if not profile.steps:
        return ()
    case = _Case(profile, framework, thresholds)
    found = [advice for rule in _RULES for advice in rule(case)]
    if framework == JAX:
        found = [replace(one, read=guides.IN_JAX.get(one.read, one.read)) for one in found]
    return by_saving(found)


def by_saving(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Return advice, the largest possible saving first."""
    return tuple(sorted(advice, key=lambda one: -round(one.win_s or 0.0, _NANOSECONDS)))


def _input(case: _Case) -> Iterable[Advice]:
    bound = case.value("input_bound")
    if bound.number is not None and bound.number >= case.at.input:
        what = bound.detail.get(
            "try",
            f"feed the steps from a tf.data pipeline that ends in {PREFETCH}",
        )
        yield Advice(
            what=what,
            because=case.said("input_bound", with_place=True),
            win_s=case.seconds(bound.number),
            look="the input pipeline's stages",
            read=guides.GRAIN if "Grain" in what else guides.PIPELINES,
        )


def _part(part: str, texts: Mapping[str, str], look: str, read: str) -> _Rule:
    """Make the rule of a part of the step, whose threshold has the part's name."""

    def rule(case: _Case) -> Iterable[Advice]:
        share = case.share(part)
        if share >= getattr(case.at, part):
            because = f"{part.replace('_', ' ')} takes {format_quantity(share, '0..1')} of the step"
            what, win_s = text_for(texts, case.framework), case.seconds(share)
            yield Advice(what=what, because=because, win_s=win_s, look=look, read=read)

    return rule


def _compile(case: _Case) -> Iterable[Advice]:
    """Advise on compilation after the first step, which is the only one that must compile."""
    if case.value("xla_compiles").number != 0 or case.value("retraces").number != 0:
        rule = _part("compile", CONSTANT, "xla_compiles and retraces", guides.FUNCTIONS)
        yield from rule(case)


def _python(case: _Case) -> Iterable[Advice]:
    overhead = case.value("host_overhead")
    if overhead.number is not None and overhead.number >= case.at.host_overhead:
        yield Advice(
            what=overhead.detail.get("try", "do less in Python between the steps"),
            because=case.said("host_overhead"),
            win_s=case.seconds(overhead.number),
            look=_EXPORT,
            read=guides.FUNCTIONS,
        )


def _half_precision(case: _Case) -> Iterable[Advice]:
    """
    Advise 16 bits, but not for products of XLA on CPUs or of GPUs without tensor cores; they save
    half of the products' time at most. Products of XLA on CPUs took 0.98 to 1.5 times as long as in
    32 bits, and TensorFlow's own ops 0.4 to 0.7 times: matmuls and convolutions on two EPYC cores
    with AVX-512 BF16, 2026-11-25.
    """
    half, on_cores = case.value("half_precision"), case.value("tensor_core_time").detail
    if half.detail.get(ON_CPU) or on_cores.get(NO_TENSOR_CORES):
        return
    if half.number is not None and half.number < case.at.half_precision:
        products = case.share("device_compute") * on_cores.get("eligible_share", 1.0)
        win = case.seconds(products / 2) if products else None
        yield Advice(
            what=text_for(HALVE, case.framework),
            because=case.said("half_precision"),
            win_s=win,
            look="the op profile: which matmuls and convolutions take the time",
            read=guides.MIXED_PRECISION,
        )


def _tensor_cores(case: _Case) -> Iterable[Advice]:
    used = case.value("tensor_core_time")
    if used.number is not None and used.number < case.at.tensor_cores:
        products = case.share("device_compute") * used.detail.get("eligible_share", 1.0)
        win = case.seconds(products * (1 - used.number) / 2)
        types = "16-bit" if used.detail.get(NO_TF32) else "16-bit or TF32"
        yield Advice(
            what=(
                "make the dimensions of matmuls and convolutions multiples of 8 (of 16 for 8-bit "
                f"types), and use {types} types"
            ),
            because=case.said("tensor_core_time"),
            win_s=win,
            look="the kernel table",
            read=guides.MIXED_PRECISION,
        )


def _awaiting(case: _Case) -> Iterable[Advice]:
    share = case.value("device_busy").detail.get("awaiting_share") or 0.0
    if share >= case.at.awaiting:
        yield Advice(
            what=(
                "start asynchronous copies and collectives earlier, make them smaller, or keep "
                "the data in the device's memory"
            ),
            because=(
                f"{format_quantity(share, '0..1')} of the devices' time awaits what runs "
                "asynchronously (-done ops)"
            ),
            win_s=case.seconds(share * (case.value("device_busy").number or 0.0)),
            look="the op profile",
            read=guides.PROFILER,
        )


def _eager(case: _Case) -> Iterable[Advice]:
    share = case.value("eager_ops").detail.get("time_share") or 0.0
    if share > case.at.eager and case.value("eager_ops").number:
        yield Advice(
            what=case.value("eager_ops").detail.get("try", "move them into a tf.function"),
            because=f"{format_quantity(share, '0..1')} of the ops' time on the host is eager",
            win_s=None,
            look="the op table",
            read=guides.FUNCTIONS,
        )


def _told(metric: str, read: str, below: float = inf) -> _Rule:
    """Make the rule of a metric that tells place and remedy, between 0 and `below`."""

    def rule(case: _Case) -> Iterable[Advice]:
        value = case.value(metric)
        of_total = text_for(CONSTANT, case.framework) if metric in TOTALS else ""
        what = str(value.detail.get("try") or of_total)
        if value.number and value.number < below and what:
            yield Advice(
                what=what,
                because=case.said(metric),
                win_s=None,
                look=value.detail.get("where", ""),
                read=read,
            )

    return rule


def _functions(case: _Case) -> Iterable[Advice]:
    share = case.value("retraces").detail.get("expensive_share") or 0.0
    if share >= case.at.traced_calls and case.value("retraces").number != 0:
        yield Advice(
            what=(
                "trace tf.functions once: create them outside the loop, pass tensors of constant "
                "shape, and call them, not their Python"
            ),
            because=(
                f"{format_quantity(share, '0..1')} of the tf.functions' time is in calls that "
                "traced or ran eagerly"
            ),
            win_s=None,
            look="the table of tf.functions",
            read=guides.FUNCTIONS,
        )


def _skew(case: _Case) -> Iterable[Advice]:
    skew = case.value("step_skew")
    if skew.number is not None and skew.number >= case.at.skew:
        yield Advice(
            what="even the work out: equal batches for all, the same input pipeline and hardware",
            because=case.said("step_skew"),
            win_s=case.seconds(skew.number / (1 + skew.number)),
            look=skew.detail.get("where", "the table of devices"),
            read=guides.PROFILER,
        )


def _memory(case: _Case) -> Iterable[Advice]:
    """Advise on a nearly full device, on free memory in small pieces, and on known growth."""
    table = case.profile.tables.get("memory")
    records = table.records() if table is not None else []
    found: list[tuple[Mapping[str, str], str]] = []
    for record in records:
        used, pieces = record.get("of_capacity"), record.get("fragmentation") or 0.0
        if used is None or not str(record["allocator"]).startswith(_ACCELERATORS):
            continue
        held, capacity = (format_quantity(record[key], BYTES) for key in ("peak", "capacity"))
        because = f"{record['allocator']} holds {held} of {capacity} at its peak"
        if used >= case.at.memory:
            found.append((FULL, because))
        elif used >= case.at.fragmented and used + (1 - used) * pieces >= case.at.memory:
            free = f"{format_quantity(pieces, SHARE)} of what is free is in smaller pieces"
            found.append((PIECES, f"{because}, and {free}"))
    growth = case.value("memory_growth")
    grown = [record for record in records if (record.get("growth") or 0.0) > 0]
    if growth.number is not None and growth.low() > 0:
        least = format_quantity(growth.low(), BYTES)
        found.append((GROWS, f"the process holds at least {least} more after each step"))
    elif grown:
        least = format_quantity(grown[0]["growth"], BYTES)
        found.append((GROWS, f"{grown[0]['allocator']} holds at least {least} more a step"))
    for texts, because in found:
        yield Advice(
            what=text_for(texts, case.framework),
            because=because,
            win_s=None,
            look="the table memory",
            read=guides.MEMORY,
        )


_RULES: tuple[_Rule, ...] = (
    _input,
    _compile,
    _part("output", FETCH_LESS, _EXPORT, guides.FUNCTIONS),
    _part("kernel_launch", LAUNCH_LESS, "the kernel table", guides.GPUS),
    _part("collective", REDUCE_LESS, "the op profile", guides.GPUS),
    _part("device_to_device", KEEP_IN_PLACE, _EXPORT, guides.GPUS),
    _python,
    _half_precision,
    _tensor_cores,
    _awaiting,
    _eager,
    _told("retraces", guides.FUNCTIONS),
    _told("xla_compiles", guides.FUNCTIONS),
    _told("xla_coverage", guides.XLA, below=1.0),  # without any cluster a gain is unknown
    _functions,
    _skew,
    _memory,
)
