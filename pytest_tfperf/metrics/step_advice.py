"""
Advise what to do next about a profile, in the order of the time that it could save.

The thresholds from which a rule speaks are those of `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pytest_tfperf.advice import guides, memory_advice
from pytest_tfperf.advice.thresholds import THRESHOLDS, Thresholds
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.kernels import NO_TENSOR_CORES, NO_TF32
from pytest_tfperf.metrics.step_flops import ON_CPU
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Advice, Value

Rule = Callable[[Profile, Thresholds], Iterable[Advice]]

_NANOSECONDS = 9
"""Digits of a saving; further ones differ between two ways of adding the same times up."""
_EXPORT = "the timeline: tfperf export TRACE -o trace.json, in ui.perfetto.dev"


def advise(
    profile: Profile, framework: str = TENSORFLOW, thresholds: Thresholds = THRESHOLDS
) -> tuple[Advice, ...]:
    """
    Return advice about the profile of traced steps, the largest possible saving first.

    It names the means of the framework that ran the steps.

    Args:
        profile: The profile.
        framework: The framework.
        thresholds: Limits from which the rules speak.
    """
    if not profile.steps:
        return ()
    found = [advice for rule in _RULES for advice in rule(profile, thresholds)]
    if framework == JAX:
        found = [
            replace(
                advice,
                what=_IN_JAX.get(advice.what, advice.what),
                read=guides.IN_JAX.get(advice.read, advice.read),
            )
            for advice in found
        ]
    return by_saving(found)


def by_saving(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Return advice, the largest possible saving first."""
    return tuple(sorted(advice, key=lambda one: -round(one.win_s or 0.0, _NANOSECONDS)))


def _input(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    bound = profile.value("input_bound")
    if bound.number is not None and bound.number >= thresholds.input:
        what = bound.detail.get(
            "try",
            "feed the steps from a tf.data pipeline that ends in prefetch(tf.data.AUTOTUNE)",
        )
        yield Advice(
            what=what,
            because=_said(profile, "input_bound", with_place=True),
            win_s=_seconds(profile, bound.number),
            look="the input pipeline's stages",
            read=guides.GRAIN if "Grain" in what else guides.PIPELINES,
        )


def _part(part: str, what: str, look: str, read: str) -> Rule:
    """Make the rule of a part of the step, whose threshold has the part's name."""

    def rule(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
        share = _share(profile, part)
        if share >= getattr(thresholds, part):
            because = f"{part.replace('_', ' ')} takes {format_quantity(share, '0..1')} of the step"
            win_s = _seconds(profile, share)
            yield Advice(what=what, because=because, win_s=win_s, look=look, read=read)

    return rule


def _compile(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    """Advise on compilation after the first step, which is the only one that must compile."""
    if profile.value("xla_compiles").number != 0 or profile.value("retraces").number != 0:
        rule = _part("compile", _CONSTANT, "xla_compiles and retraces", guides.FUNCTIONS)
        yield from rule(profile, thresholds)


def _python(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    overhead = profile.value("host_overhead")
    if overhead.number is not None and overhead.number >= thresholds.host_overhead:
        yield Advice(
            what=overhead.detail.get("try", "do less in Python between the steps"),
            because=_said(profile, "host_overhead"),
            win_s=_seconds(profile, overhead.number),
            look=_EXPORT,
            read=guides.FUNCTIONS,
        )


def _half_precision(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    """
    Advise to compute in 16 bits, but for products of XLA on CPUs, and GPUs without tensor cores.

    It saves half of the products' time at most, of which GPUs' kernels tell the share. Products of
    XLA on CPUs took 0.98 to 1.5 times as long as in 32 bits, and TensorFlow's own ops 0.4 to 0.7
    times: matmuls and convolutions on two EPYC cores with AVX-512 BF16, 2026-11-25.
    """
    half, on_cores = profile.value("half_precision"), profile.value("tensor_core_time").detail
    if half.detail.get(ON_CPU) or on_cores.get(NO_TENSOR_CORES):
        return
    if half.number is not None and half.number < thresholds.half_precision:
        products = _share(profile, "device_compute") * on_cores.get("eligible_share", 1.0)
        win = _seconds(profile, products / 2) if products else None
        yield Advice(
            what=_HALVE,
            because=_said(profile, "half_precision"),
            win_s=win,
            look="the op profile: which matmuls and convolutions take the time",
            read=guides.MIXED_PRECISION,
        )


def _tensor_cores(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    used = profile.value("tensor_core_time")
    if used.number is not None and used.number < thresholds.tensor_cores:
        products = _share(profile, "device_compute") * used.detail.get("eligible_share", 1.0)
        win = _seconds(profile, products * (1 - used.number) / 2)
        types = "16-bit" if used.detail.get(NO_TF32) else "16-bit or TF32"
        yield Advice(
            what=(
                "make the dimensions of matmuls and convolutions multiples of 8 (of 16 for 8-bit "
                f"types), and use {types} types"
            ),
            because=_said(profile, "tensor_core_time"),
            win_s=win,
            look="the kernel table",
            read=guides.MIXED_PRECISION,
        )


def _awaiting(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    share = profile.value("device_busy").detail.get("awaiting_share") or 0.0
    if share >= thresholds.awaiting:
        yield Advice(
            what=(
                "start asynchronous copies and collectives earlier, make them smaller, or keep "
                "the data in the device's memory"
            ),
            because=(
                f"{format_quantity(share, '0..1')} of the devices' time awaits what runs "
                "asynchronously (-done ops)"
            ),
            win_s=_seconds(profile, share * (profile.value("device_busy").number or 0.0)),
            look="the op profile",
            read=guides.PROFILER,
        )


def _eager(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    share = profile.value("eager_ops").detail.get("time_share") or 0.0
    if share > thresholds.eager and profile.value("eager_ops").number:
        yield Advice(
            what=profile.value("eager_ops").detail.get("try", "move them into a tf.function"),
            because=f"{format_quantity(share, '0..1')} of the ops' time on the host is eager",
            win_s=None,
            look="the op table",
            read=guides.FUNCTIONS,
        )


def _again(metric: str) -> Rule:
    def rule(profile: Profile, _: Thresholds) -> Iterable[Advice]:
        value = profile.value(metric)
        if value.number:
            yield Advice(
                what=value.detail.get("try", ""),
                because=_said(profile, metric),
                win_s=None,
                look=value.detail.get("where", ""),
                read=guides.FUNCTIONS,
            )

    return rule


def _partly_compiled(profile: Profile, _: Thresholds) -> Iterable[Advice]:
    """Advise on steps that XLA compiles in part; without any cluster a gain is unknown."""
    covered = profile.value("xla_coverage")
    if covered.number and covered.number < 1:
        yield Advice(
            what=covered.detail.get("try", ""),
            because=_said(profile, "xla_coverage"),
            win_s=None,
            look=covered.detail.get("where", ""),
            read=guides.XLA,
        )


def _functions(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    share = profile.value("retraces").detail.get("expensive_share") or 0.0
    if share >= thresholds.traced_calls and profile.value("retraces").number != 0:
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


def _skew(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    skew = profile.value("step_skew")
    if skew.number is not None and skew.number >= thresholds.skew:
        yield Advice(
            what="even the work out: equal batches for all, the same input pipeline and hardware",
            because=_said(profile, "step_skew"),
            win_s=_seconds(profile, skew.number / (1 + skew.number)),
            look=skew.detail.get("where", "the table of devices"),
            read=guides.PROFILER,
        )


def _seconds(profile: Profile, share: float | None) -> float:
    """Return a share of the mean period of the traced steps, in seconds."""
    return (share or 0.0) * sum(step.period_s for step in profile.steps) / len(profile.steps)


def _share(profile: Profile, part: str) -> float:
    period = sum(step.period_s for step in profile.steps)
    return sum(step.parts_s[part] for step in profile.steps) / period if period else 0.0


def _said(profile: Profile, metric: str, with_place: bool = False) -> str:
    """Return the value of a known metric in words."""
    value: Value = profile.value(metric)
    assert value.number is not None
    place = f": {value.detail['where']}" if with_place and value.detail.get("where") else ""
    return f"{metric} is {format_quantity(value.number, METRICS[metric].unit)}{place}"


_CONSTANT = (
    "keep shapes and Python arguments constant, so that nothing is compiled after the first step"
)
_HALVE = (
    "compute matmuls and convolutions in 16 bits: "
    "keras.mixed_precision.set_global_policy('mixed_bfloat16') on TPUs, recent GPUs and CPUs "
    "with bfloat16 instructions, 'mixed_float16' with loss scaling on older GPUs"
)
_FETCH_LESS = "fetch results less often: log every n steps, return tensors instead of numbers"
_KEEP_IN_PLACE = "keep tensors on the device that uses them"
_LAUNCH_LESS = (
    "launch fewer and larger kernels: jit_compile=True, larger batches; with tf.data set "
    "TF_GPU_THREAD_MODE=gpu_private"
)
_REDUCE_LESS = (
    "overlap or shrink the collectives: larger batches a device, 16-bit gradients, fewer and "
    "larger buckets"
)
_IN_JAX = {
    _HALVE: (
        "compute matmuls and convolutions in 16 bits: cast parameters and inputs to jnp.bfloat16, "
        "or to jnp.float16 with loss scaling on older GPUs"
    ),
    _LAUNCH_LESS: (
        "launch fewer and larger kernels: one jax.jit around the whole step, several steps in one "
        "jax.lax.scan, larger batches"
    ),
    _FETCH_LESS: (
        "fetch results less often: log every n steps, keep jax.Arrays instead of calling float() "
        "or numpy.asarray()"
    ),
    _CONSTANT: (
        "keep shapes, types and static arguments of jax.jit functions constant, so that nothing "
        "is compiled after the first step"
    ),
    _KEEP_IN_PLACE: "keep arrays on the device that uses them: jax.device_put once, not each step",
    **memory_advice.IN_JAX,
}
"""Advice in terms of JAX, by the same advice in terms of TensorFlow."""
PART_REMEDIES = {
    part: (remedy, _IN_JAX.get(remedy, remedy))
    for part, remedy in (
        ("output", _FETCH_LESS),
        ("kernel_launch", _LAUNCH_LESS),
        ("collective", _REDUCE_LESS),
        ("device_to_device", _KEEP_IN_PLACE),
    )
}
"""Remedies of parts of the step that have one cause, in terms of TensorFlow and of JAX."""
_RULES: tuple[Rule, ...] = (
    _input,
    _compile,
    _part("output", _FETCH_LESS, _EXPORT, guides.FUNCTIONS),
    _part("kernel_launch", _LAUNCH_LESS, "the kernel table", guides.GPUS),
    _part("collective", _REDUCE_LESS, "the op profile", guides.GPUS),
    _part("device_to_device", _KEEP_IN_PLACE, _EXPORT, guides.GPUS),
    _python,
    _half_precision,
    _tensor_cores,
    _awaiting,
    _eager,
    _again("retraces"),
    _again("xla_compiles"),
    _partly_compiled,
    _functions,
    _skew,
    memory_advice.memory_advice,
)
