"""What to do next: when a rule speaks, what it says it could win, and in which order."""

from dataclasses import replace

import pytest
from helpers.builders import profile, value

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.metrics.pipeline import no_stage_cause
from pytest_tfperf.metrics.step_advice import advise
from pytest_tfperf.values import PARTS, Step, Value


def stepping(metrics=None, **shares):
    """A profile with one step of 100 ms whose parts take these shares."""
    parts = dict.fromkeys(PARTS, 0.0) | {part: share * 0.1 for part, share in shares.items()}
    return profile(steps=(Step(name="train 0", period_s=0.1, parts_s=parts),), **(metrics or {}))


def test_good_steps_need_no_advice():
    assert (
        advise(
            stepping(
                {"input_bound": 0.049, "host_overhead": 0.029, "half_precision": 0.9},
                device_compute=0.9,
            )
        )
        == ()
    )


def test_without_steps_there_is_none():
    assert advise(profile(input_bound=0.5)) == ()


def test_each_rule_speaks_from_its_threshold_on():
    cases = [
        ({"input_bound": 0.05}, {}, "input_bound is 5 %"),
        ({"host_overhead": 0.03}, {}, "host_overhead is 3 %"),
        ({}, {"compile": 0.03}, "compile takes 3 % of the step"),
        ({}, {"output": 0.05}, "output takes 5 % of the step"),
        ({}, {"kernel_launch": 0.03}, "kernel launch takes 3 % of the step"),
        ({}, {"collective": 0.03}, "collective takes 3 % of the step"),
        ({}, {"device_to_device": 0.03}, "device to device takes 3 % of the step"),
        ({"half_precision": 0.099}, {}, "half_precision is 9.9 %"),
        ({"tensor_core_time": 0.49}, {}, "tensor_core_time is 49 %"),
        ({"retraces": 1}, {}, "retraces is 1"),
        ({"xla_compiles": 2}, {}, "xla_compiles is 2"),
        ({"step_skew": 0.1}, {}, "step_skew is 10 %"),
        (
            {"eager_ops": value("eager_ops", 3, time_share=0.11)},
            {},
            "11 % of the ops' time on the host is eager",
        ),
        (
            {"device_busy": value("device_busy", 0.9, awaiting_share=0.1)},
            {},
            "10 % of the devices' time awaits what runs asynchronously (-done ops)",
        ),
        (
            {"retraces": Value.unknown("retraces", "?").changed(detail={"expensive_share": 0.2})},
            {},
            "20 % of the tf.functions' time is in calls that traced or ran eagerly",
        ),
    ]
    for metrics, shares, because in cases:
        (advice,) = advise(stepping(metrics, **shares))
        assert advice.because == because, because
        assert advice.read.startswith("https://"), because


def test_below_it_none_does():
    cases = [
        (
            {},
            {
                "compile": 0.029,
                "output": 0.049,
                "kernel_launch": 0.029,
                "collective": 0.029,
                "device_to_device": 0.029,
            },
        ),
        (
            {
                "half_precision": 0.1,
                "tensor_core_time": 0.5,
                "retraces": 0,
                "xla_compiles": 0,
                "step_skew": 0.099,
            },
            {"device_compute": 0.5},
        ),
        ({"eager_ops": value("eager_ops", 3, time_share=0.10), "input_bound": 0.0}, {}),
    ]
    for metrics, shares in cases:
        assert advise(stepping(metrics, **shares)) == (), shares


@pytest.mark.parametrize(
    ("metrics", "shares"),
    [
        (
            {"retraces": value("retraces", 0, expensive_share=0.9), "xla_compiles": 0},
            {"compile": 0.5},
        ),  # what the first step must do
        (
            {"eager_ops": value("eager_ops", 0, time_share=0.6)},
            {},
        ),  # fetching elements is no op of the step's
    ],
)
def test_nothing_is_advised_that_cannot_be_won(metrics, shares):
    assert advise(stepping(metrics, **shares)) == ()


def test_a_count_without_a_known_cause_has_the_remedy_of_all():
    [advice] = advise(stepping({"retraces": 1}))
    assert "keep shapes and Python arguments constant" in advice.what


def test_what_could_win_most_comes_first():
    found = advise(
        stepping(
            {"input_bound": 0.2, "host_overhead": 0.3, "half_precision": 0.0, "retraces": 1},
            device_compute=0.5,
        )
    )
    assert [
        (advice.because.split()[0], advice.win_s and round(advice.win_s, 6)) for advice in found
    ] == [
        ("host_overhead", 0.03),
        ("half_precision", 0.025),
        ("input_bound", 0.02),
        ("retraces", None),
    ]


def test_advice_names_the_cause_that_the_metric_found():
    bound = value(
        "input_bound",
        0.5,
        where="stage Map is the slowest",
        **{"try": "map(..., num_parallel_calls=tf.data.AUTOTUNE)"},
    )
    assert (
        advise(stepping({"input_bound": bound}))[0].what
        == "map(..., num_parallel_calls=tf.data.AUTOTUNE)"
    )


def test_on_a_cpu_nothing_is_promised_for_16_bits():
    assert advise(stepping({"half_precision": 0.0}, host_compute=0.9))[0].win_s is None


def test_products_of_xla_on_a_cpu_get_no_advice_on_16_bits():
    assert (
        advise(stepping({"half_precision": value("half_precision", 0.0, by_xla_on_cpu=True)})) == ()
    )


def test_an_unknown_metric_is_no_reason():
    assert advise(stepping()) == ()


def test_steps_of_jax_refer_to_pages_of_jax():
    steps = stepping({"retraces": 1}, compile=0.1)
    assert {one.read for one in advise(steps)} == {guides.FUNCTIONS}
    assert {one.read for one in advise(steps, JAX)} == {guides.JAX_JIT}


def test_loading_without_tf_data_in_jax_refers_to_grain():
    bound = value("input_bound", 0.5, **no_stage_cause(JAX))
    (advice,) = advise(stepping({"input_bound": bound}), JAX)
    assert advice.read == guides.GRAIN


def test_thresholds_can_be_given():
    steps = stepping({"input_bound": 0.2})
    assert advise(steps, thresholds=replace(THRESHOLDS, input=0.2))
    assert advise(steps, thresholds=replace(THRESHOLDS, input=0.21)) == ()


def test_what_is_unknown_is_no_zero():
    at_zero = replace(THRESHOLDS, input=0.0, host_overhead=0.0, skew=0.0)
    assert advise(stepping(), thresholds=at_zero) == ()


def test_faster_products_save_half_of_the_products_time_at_most():
    """A third of the device's time is in products, of which a quarter runs on tensor cores."""
    used = value("tensor_core_time", 0.25, eligible_share=1 / 3)
    for given, share in [
        ({"tensor_core_time": used}, 0.6 / 3 * 0.75 / 2),
        ({"half_precision": 0.0, "tensor_core_time": used.changed(number=1.0)}, 0.6 / 3 / 2),
    ]:
        profile = stepping(given, device_compute=0.6)
        (advice,) = advise(profile)
        period_s = sum(step.period_s for step in profile.steps) / len(profile.steps)
        assert advice.win_s == pytest.approx(share * period_s), given


def test_advice_on_types_knows_what_the_gpu_has():
    none = Value.unknown("tensor_core_time", "?").changed(detail={"no_tensor_cores": True})
    assert advise(stepping({"half_precision": 0.0, "tensor_core_time": none})) == ()
    for detail, types in [({}, "16-bit or TF32 types"), ({"no_tf32": True}, "16-bit types")]:
        used = value("tensor_core_time", 0.25, **detail)
        (advice,) = advise(stepping({"tensor_core_time": used}))
        assert advice.what.endswith(f"use {types}"), detail
