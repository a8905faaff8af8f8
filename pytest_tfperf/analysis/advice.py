"""
Advise what to do next about a profile, in the order of the time that it could save.

The thresholds are those of XProf's Overview page (openxla/xprof, bottleneck_analysis and
op_stats_to_overview_page): 5 % of the step for input and output; 3 % for launches, collectives and
the rest; under 10 % of 16-bit work; over 10 % of eager ops' time; 10 % of awaiting (its smart
suggestions); 20 % of a tf.function's time in traced or eager calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pytest_tfperf.analysis.host.shown import JAX, TENSORFLOW
from pytest_tfperf.metrics import METRICS
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Advice, Value

_WAITING, _SOME, _MOST = 0.05, 0.03, 0.20
_HALF, _EAGER, _SKEWED, _AWAITING, _TENSOR_CORES = 0.10, 0.10, 0.10, 0.10, 0.50
_EXPORT = "the timeline: tfperf export TRACE -o trace.json, in ui.perfetto.dev"


def advise(profile: Profile, framework: str = TENSORFLOW) -> tuple[Advice, ...]:
    """
    Return advice about the profile of traced steps, the largest possible saving first.

    It names the means of the framework that ran the steps.
    """
    if not profile.steps:
        return ()
    found = [advice for rule in _RULES for advice in rule(profile)]
    if framework == JAX:
        found = [replace(advice, what=_IN_JAX.get(advice.what, advice.what)) for advice in found]
    return tuple(sorted(found, key=lambda advice: -(advice.win_s or 0.0)))


def _input(profile: Profile) -> Iterable[Advice]:
    bound = profile.value("input_bound")
    if (bound.number or 0.0) >= _WAITING:
        yield Advice(
            what=bound.detail.get(
                "try",
                "feed the steps from a tf.data pipeline that ends in prefetch(tf.data.AUTOTUNE)",
            ),
            because=_said(profile, "input_bound", with_place=True),
            win_s=_seconds(profile, bound.number),
            look="the input pipeline's stages",
        )


def _part(part: str, least: float, what: str, look: str) -> Callable[[Profile], Iterable[Advice]]:
    def rule(profile: Profile) -> Iterable[Advice]:
        share = _share(profile, part)
        if share >= least:
            because = f"{part.replace('_', ' ')} takes {format_quantity(share, '0..1')} of the step"
            yield Advice(what=what, because=because, win_s=_seconds(profile, share), look=look)

    return rule


def _compile(profile: Profile) -> Iterable[Advice]:
    """Advise on compilation after the first step, which is the only one that must compile."""
    if profile.value("xla_compiles").number != 0 or profile.value("retraces").number != 0:
        yield from _part("compile", _SOME, _CONSTANT, "xla_compiles and retraces")(profile)


def _python(profile: Profile) -> Iterable[Advice]:
    overhead = profile.value("host_overhead")
    if (overhead.number or 0.0) >= _SOME:
        yield Advice(
            what=overhead.detail.get("try", "do less in Python between the steps"),
            because=_said(profile, "host_overhead"),
            win_s=_seconds(profile, overhead.number),
            look=_EXPORT,
        )


def _half_precision(profile: Profile) -> Iterable[Advice]:
    half = profile.value("half_precision")
    if half.number is not None and half.number < _HALF:
        on_device = _share(profile, "device_compute")
        win = _seconds(profile, on_device / 2) if on_device else None
        yield Advice(
            what=_HALVE,
            because=_said(profile, "half_precision"),
            win_s=win,
            look="the op profile: which matmuls and convolutions take the time",
        )


def _tensor_cores(profile: Profile) -> Iterable[Advice]:
    used = profile.value("tensor_core_time")
    if used.number is not None and used.number < _TENSOR_CORES:
        win = _seconds(profile, _share(profile, "device_compute") * (1 - used.number) / 2)
        yield Advice(
            what=(
                "make the dimensions of matmuls and convolutions multiples of 8 (of 16 for 8-bit "
                "types), and use 16-bit or TF32 types"
            ),
            because=_said(profile, "tensor_core_time"),
            win_s=win,
            look="the kernel table",
        )


def _awaiting(profile: Profile) -> Iterable[Advice]:
    share = profile.value("device_busy").detail.get("awaiting_share") or 0.0
    if share >= _AWAITING:
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
        )


def _eager(profile: Profile) -> Iterable[Advice]:
    share = profile.value("eager_ops").detail.get("time_share") or 0.0
    if share > _EAGER and profile.value("eager_ops").number:
        yield Advice(
            what=profile.value("eager_ops").detail.get("try", "move them into a tf.function"),
            because=f"{format_quantity(share, '0..1')} of the ops' time on the host is eager",
            win_s=None,
            look="the op table",
        )


def _again(metric: str) -> Callable[[Profile], Iterable[Advice]]:
    def rule(profile: Profile) -> Iterable[Advice]:
        value = profile.value(metric)
        if value.number:
            yield Advice(
                what=value.detail.get("try", ""),
                because=_said(profile, metric),
                win_s=None,
                look=value.detail.get("where", ""),
            )

    return rule


def _partly_compiled(profile: Profile) -> Iterable[Advice]:
    """Advise on steps that XLA compiles in part; without any cluster a gain is unknown."""
    covered = profile.value("xla_coverage")
    if covered.number and covered.number < 1:
        yield Advice(
            what=covered.detail.get("try", ""),
            because=_said(profile, "xla_coverage"),
            win_s=None,
            look=covered.detail.get("where", ""),
        )


def _functions(profile: Profile) -> Iterable[Advice]:
    share = profile.value("retraces").detail.get("expensive_share") or 0.0
    if share >= _MOST and profile.value("retraces").number != 0:
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
        )


def _skew(profile: Profile) -> Iterable[Advice]:
    skew = profile.value("step_skew")
    if (skew.number or 0.0) >= _SKEWED:
        assert skew.number is not None
        yield Advice(
            what="even the work out: equal batches for all, the same input pipeline and hardware",
            because=_said(profile, "step_skew"),
            win_s=_seconds(profile, skew.number / (1 + skew.number)),
            look=skew.detail.get("where", "the table of devices"),
        )


def _seconds(profile: Profile, share: float | None) -> float:
    """Return a share of the mean period of the traced steps, in seconds."""
    return (share or 0.0) * sum(step.period_s for step in profile.steps) / len(profile.steps)


def _share(profile: Profile, part: str) -> float:
    period = sum(step.period_s for step in profile.steps)
    return sum(step.parts_s[part] for step in profile.steps) / period if period else 0.0


def _said(profile: Profile, metric: str, with_place: bool = False) -> str:
    """
    Return the value of a known metric in words.

    Args:
        profile: The profile.
        metric: Name of the metric.
        with_place: True to add the place that the value comes from, if it is known.
    """
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
}
"""Advice in terms of JAX, by the same advice in terms of TensorFlow."""
_RULES: tuple[Callable[[Profile], Iterable[Advice]], ...] = (
    _input,
    _compile,
    _part("output", _WAITING, _FETCH_LESS, _EXPORT),
    _part("kernel_launch", _SOME, _LAUNCH_LESS, "the kernel table"),
    _part("collective", _SOME, _REDUCE_LESS, "the op profile"),
    _part("device_to_device", _SOME, "keep tensors on the device that uses them", _EXPORT),
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
)
