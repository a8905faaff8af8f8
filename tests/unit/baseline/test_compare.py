"""A profile against what is stored: structure decided exactly, timing shown."""

import json
from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, SERVER, profile, record_of, run_of, value
from helpers.refusals import refusal

from pytest_tfperf.baseline import compare as compare_module
from pytest_tfperf.baseline import step_time
from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline, lost_numbers
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import read_structure
from pytest_tfperf.baseline.structure import against_profile
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import Column, Source, Table, Value

HOW_TO_RECORD = (
    "  try: record it with pytest --tfperf-update-new (what is missing) or --tfperf-update (all)"
)


@pytest.fixture
def place(new_place):
    return new_place()


def store(place, measured, environment=LAPTOP, times=1):
    for _ in range(times):
        record({place: [run_of(record_of(measured, environment=environment))]}, False)


def compare(place, measured, environment=LAPTOP, only="structural", max_regression=None):
    return list(
        compare_with_baseline(
            measured, "test_step", Baseline(place), environment, only, max_regression
        )
    )


def the_check(place, before, now, **options):
    store(place, before)
    [found] = compare(place, now, **options)
    return found


def test_structure_is_compared_exactly_in_the_better_direction(new_place):
    cases = [
        ("retraces", 2, 2, "PASS"),
        ("retraces", 2, 3, "REGRESSION"),
        ("retraces", 2, 1, "IMPROVED"),
        ("batch_padding", 0.5, 0.5, "PASS"),
        ("batch_padding", 0.5, 0.501, "REGRESSION"),
        ("batch_padding", 0.5, 0.499, "IMPROVED"),
        ("batch_padding", 1 / 3, 1 / 3, "PASS"),  # stored rounded
        ("batch_padding", 1 / 3, 1 / 3 + 1e-9, "PASS"),  # no difference of what is stored
        ("xla_clusters", 1, 1, "PASS"),
        ("xla_clusters", 1, 2, "PASS"),  # XLA may compile more
        ("flops", 1e9, 1e9, "PASS"),
        ("flops", 70_594_062, 70_594_122, "PASS"),
        ("flops", 1_000_000, 1_001_000, "PASS"),  # 0.1 %
        ("flops", 1_000_000, 1_001_001, "REGRESSION"),
        ("flops", 0, 1, "REGRESSION"),
        ("flops", 1_000_000, 999_000, "PASS"),
        ("flops", 1e9, 0.5e9, "PASS"),
        ("retraces", 0, 0, "PASS"),
        ("retraces", 0, 1, "REGRESSION"),
        ("peak_memory", 1000, 1100, "PASS"),
        ("peak_memory", 1000, 1101, "REGRESSION"),
        ("peak_memory", 1000, 900, "PASS"),
        ("peak_memory", 1000, 899, "IMPROVED"),
        ("host_device_bytes", 1000, 1001, "REGRESSION"),  # the tolerance is peak_memory's alone
    ]
    for metric, before, now, verdict in cases:
        place = new_place()
        found = the_check(place, profile(**{metric: before}), profile(**{metric: now}))
        assert (found.metric, found.kind, found.verdict) == (
            metric,
            "baseline",
            Verdict(verdict),
        ), (metric, before, now)


def test_a_sample_may_differ_by_as_much_as_samples_do(new_place):
    cases = [
        (0.5, 0.625, 0.125, "PASS"),
        (0.5, 0.375, 0.125, "PASS"),
        (0.5, 0.626, 0.125, "REGRESSION"),
        (0.5, 0.374, 0.125, "IMPROVED"),
        (0.5, 0.501, 0.0, "REGRESSION"),
    ]
    for before, now, varies, verdict in cases:
        place = new_place()
        found = the_check(
            place,
            profile(batch_padding=before),
            profile(batch_padding=value("batch_padding", now, varies=varies)),
        )
        assert found.verdict == Verdict(verdict), now
        assert ("within 12.5 % of the 50 % in the baseline" in found.message) == (
            verdict == "PASS"
        ), now


def test_a_change_shows_both_values(new_place):
    cases = [
        ("retraces", 2, 2, "retraces is 2, as in the baseline"),
        (
            "retraces",
            2,
            3,
            "retraces rose from 2 to 3\n  if intended: pytest --tfperf-update",
        ),
        (
            "retraces",
            2,
            1,
            "retraces fell from 2 to 1\n  try: pytest --tfperf-update, to hold it from now on",
        ),
        (
            "peak_memory",
            1024,
            1100,
            "peak_memory is 1.07 KiB, within 10 % of the 1 KiB in the baseline",
        ),
        (
            "batch_padding",
            0.50001,
            0.5,
            "batch_padding fell from 50 % to 50 % (exactly 0.50001 and 0.5)\n"
            "  try: pytest --tfperf-update, to hold it from now on",
        ),
    ]
    for metric, before, now, message in cases:
        place = new_place()
        found = the_check(place, profile(**{metric: before}), profile(**{metric: now}))
        assert found.message == message, now


def test_a_regression_says_where_what_to_try_and_what_changed_besides(place):
    store(place, profile(retraces=0))
    environment = {
        **LAPTOP,
        "setting": {"tensorflow": "2.21.1", "precision": "float32", "xla_flags": "--new"},
    }
    traced = value(
        "retraces", 3, n_steps=79, n_epoch_ends=2, where="step ×3", **{"try": "an input_signature"}
    )
    [found] = compare(place, profile("", retraces=traced), environment)
    assert found.message.splitlines() == [
        "retraces rose from 0 to 3",
        "  over: 79 steps after the first and 2 epoch ends",
        "  where: step ×3",
        "  changed besides: tensorflow 2.21.0 → 2.21.1",
        "  try: an input_signature",
        "  if intended: pytest --tfperf-update",
    ]
    assert found.wanted == "0 (baseline)"


@pytest.mark.parametrize(("before", "now"), [(0.487, 0.252), (0.252, 0.487)])
def test_grappler_may_have_less_to_remove_and_more(place, before, now):
    found = the_check(place, profile(graph_reduction=before), profile(graph_reduction=now))
    shown = [f"{100 * share:.3g} %" for share in (before, now)]
    moved = "rose" if now > before else "fell"
    assert (found.verdict, found.message) == (
        Verdict.PASS,
        f"graph_reduction {moved} from {shown[0]} to {shown[1]}, which does not gate: "
        "it falls where there is less to remove",
    )
    assert found.is_shown_change
    assert (found.detail["before"], found.detail["after"]) == (before, now)


def test_a_value_as_before_is_no_change_to_show(place):
    assert not the_check(
        place, profile(graph_reduction=0.5), profile(graph_reduction=0.5)
    ).is_shown_change


NEVER_RED = (
    *("fusions", "graph_reduction", "half_precision"),
    *("padding_overhead", "mxu_padding_overhead"),
)


def test_a_change_that_a_better_program_can_make_decides_nothing(new_place):
    for before, now in [(0, 1), (1, 0)]:
        for metric in NEVER_RED:
            place = new_place()
            found = the_check(place, profile(**{metric: before}), profile(**{metric: now}))
            assert (found.verdict, found.is_shown_change) == (Verdict.PASS, True), (before, metric)


def test_what_does_not_gate_and_is_unknown_now_is_undecided(new_place):
    for metric in NEVER_RED:
        place = new_place()
        found = the_check(
            place, profile(**{metric: 1}), profile(**{metric: Value.unknown(metric, "no products")})
        )
        assert found.verdict is Verdict.INCONCLUSIVE, metric
        assert found.message.startswith(f"{metric} is unknown, "), metric
        assert found.message.endswith(" in the baseline: no products"), metric


def test_a_count_does_not_gate_where_work_came_from_elsewhere(new_place):
    each_others = [
        ((2, 2), 3, "REGRESSION"),
        ((2, 2), 1, "IMPROVED"),
        ((2, 1), 3, "PASS"),
        ((2, 1), 1, "PASS"),
        ((2, None), 3, "REGRESSION"),
        ((None, 2), 3, "REGRESSION"),
    ]
    for metric, other in [("xla_launches", "xla_clusters"), ("graph_ops", "eager_ops")]:
        for others, now, verdict in each_others:
            place = new_place()
            before, after = (
                profile(
                    **{
                        metric: number,
                        other: Value.unknown(other, "?") if there is None else there,
                    }
                )
                for number, there in zip((2, now), others, strict=True)
            )
            store(place, before)
            [found] = [one for one in compare(place, after) if one.metric == metric]
            assert found.verdict == Verdict(verdict), (metric, others, now)
            assert found.message.endswith(f"and {other} changed too") == (verdict == "PASS"), (
                metric,
                others,
                now,
            )


def test_a_project_s_own_metric_gates_in_its_direction(place):
    def own(better, number):
        row = Metric("mine", "count", better, "program", "it")
        return replace(
            profile(mine=Value(number=number, unit="count", source=Source.OWN)), own={"mine": row}
        )

    verdicts = {}
    for better in ("lower", "higher", None):
        store(place, own(better, 2))
        verdicts[better] = [compare(place, own(better, n))[0].verdict.value for n in (1, 2, 3)]
    assert verdicts == {
        "lower": ["IMPROVED", "PASS", "REGRESSION"],
        "higher": ["REGRESSION", "PASS", "IMPROVED"],
        None: ["REGRESSION", "PASS", "REGRESSION"],
    }


def test_a_stored_value_that_is_unknown_now_is_unknown(place):
    unknown = Value.unknown("retraces", "the trace was cut")
    found = the_check(place, profile(retraces=2), profile(retraces=unknown))
    assert (found.verdict, found.message) == (
        Verdict.UNKNOWN,
        "retraces is unknown, 2 in the baseline: the trace was cut",
    )


def test_a_stored_metric_that_the_run_lacks_is_unknown(place):
    row = Metric("mine", "count", "lower", "program", "it")
    mine = Value(number=5, unit="count", source=Source.OWN)
    store(place, replace(profile(retraces=2, mine=mine), own={"mine": row}))
    now = profile(xla_clusters=1)
    now = replace(now, metrics={k: v for k, v in now.metrics.items() if k != "retraces"})
    found = {one.metric: one for one in compare(place, now) if one.verdict is Verdict.UNKNOWN}
    assert {name: one.message for name, one in found.items()} == {
        "mine": "mine is unknown, 5 in the baseline: this run has no such metric\n"
        "  if intended: pytest --tfperf-update",
        "retraces": "retraces is unknown, 2 in the baseline: this run has no such metric",
    }


def test_a_value_unknown_before_and_now_is_not_checked(place):
    store(place, profile(retraces=2))
    assert [found.metric for found in compare(place, profile(retraces=2))] == ["retraces"]


@pytest.mark.parametrize("metric", ["eager_ops", "fusions"])
def test_a_value_that_is_not_stored_is_new(place, metric):
    store(place, profile(retraces=0, xla_clusters=1))
    checks = compare(place, profile(retraces=0, xla_clusters=1, **{metric: 3}))
    [new] = [found for found in checks if found.verdict is Verdict.NEW]
    assert (new.metric, new.message) == (
        metric,
        f"{metric} is 3, and the baseline has none\n{HOW_TO_RECORD}",
    )


def test_a_new_metric_is_recorded_by_the_command_that_its_message_names(place):
    store(place, profile(retraces=0, xla_clusters=1))
    now = profile(retraces=0, xla_clusters=1, eager_ops=3, fusions=2)
    record({place: [run_of(record_of(now))]}, True)
    assert {found.verdict for found in compare(place, now)} == {Verdict.PASS}


@pytest.mark.parametrize("name", ["", "eval"])
def test_a_missing_entry_names_the_command_that_records_it(place, name):
    [found] = compare(place, profile(name, retraces=0), only=None)
    assert (found.verdict, found.message) == (
        Verdict.MISSING,
        f"no baseline in {place.shown}\n{HOW_TO_RECORD}",
    )


def test_an_entry_for_another_workload_is_missing_and_shows_both(place):
    store(place, profile(retraces=0, workload={"batch": 8, "inputs": ["float32[8]"]}))
    [found] = compare(
        place,
        profile(retraces=0, workload={"batch": 16, "inputs": ["float32[8]"], "replicas": 2}),
        only=None,
    )
    assert found.verdict is Verdict.MISSING
    assert found.message == (
        f"the baseline in {place.shown} is for another workload "
        "(batch: stored 8, now 16; replicas: stored None, now 2)\n"
        "  if intended: pytest --tfperf-update"
    )


def test_inputs_of_another_dtype_are_missing_with_the_dtype_first_and_the_update_last(place):
    entry = f"the baseline in {place.shown} is for another workload "
    f32, f64 = "float32[8,4]", "float64[8,4]"
    cases = [
        ([f32], [f64], f"inputs are float64 now, float32 in the baseline ({f32} → {f64})"),
        (
            [f32, "int64[8]"],
            [f64, "int64[8]"],
            f"an input is float64 now, float32 in the baseline ({f32} → {f64})",
        ),
        (
            [f32, "int32[8]"],
            [f64, "int64[8]"],
            "inputs are float64 and int64 now, float32 and int32 in the baseline "
            f"({f32} → {f64}, int32[8] → int64[8])",
        ),
    ]
    for before, now, headline in cases:
        store(place, profile(retraces=0, workload={"batch": 8, "inputs": before}))
        changed = profile(retraces=0, workload={"batch": 8, "inputs": now})
        for only in (None, "structural", "timing"):
            [found] = compare(place, changed, only=only)
            assert found.verdict is Verdict.MISSING
            assert found.message.splitlines() == [
                headline,
                f"  nothing is compared: {entry}(inputs: stored {before}, now {now})",
                "  try: cast them where the data are made or loaded",
                "  if intended: pytest --tfperf-update",
            ]


def test_inputs_of_another_shape_are_of_no_other_dtype(place):
    store(place, profile(retraces=0, workload={"inputs": ["float32[8]", "str"]}))
    for now in (
        ["float32[9]", "str"],
        ["float64[9]", "str"],
        ["float32[8]"],
        ["float32[8]", "int"],
    ):
        [found] = compare(place, profile(retraces=0, workload={"inputs": now}))
        assert found.sentence.startswith("the baseline in "), now


def test_another_platform_is_incomparable_and_named_while_program_metrics_are_decided(place):
    store(place, profile(retraces=0, xla_clusters=1))
    checks = compare(place, profile(retraces=1, xla_clusters=9), SERVER)
    assert [(found.metric, found.verdict) for found in checks] == [
        ("retraces", Verdict.REGRESSION),
        ("platform", Verdict.INCOMPARABLE),
    ]
    assert checks[1].message == (
        "platform metrics of the baseline are for cpu, TensorFlow 2.21, oneDNN on, this is H100, TensorFlow 2.21, oneDNN on\n"
        f"{HOW_TO_RECORD} on this platform"
    )


def test_each_platform_has_its_own_values(place):
    store(place, profile(graph_ops=2))
    store(place, profile(graph_ops=1), SERVER)
    assert [found.verdict for found in compare(place, profile(graph_ops=2))] == [Verdict.PASS]
    assert [found.verdict for found in compare(place, profile(graph_ops=2), SERVER)] == [
        Verdict.REGRESSION
    ]


def timing(place, measured, environment=LAPTOP, max_regression=None):
    [found] = compare(place, measured, environment, "timing", max_regression)
    return found


@pytest.mark.parametrize("n_runs", [1, 4])
def test_under_five_runs_times_are_collected_and_not_decided(place, n_runs):
    store(place, profile(step_time=0.010), times=n_runs)
    found = timing(place, profile(step_time=0.012))
    assert (found.metric, found.verdict, found.wanted) == (
        "step_time",
        Verdict.INCONCLUSIVE,
        "at most 5 % slower",
    )
    assert found.message == (
        f"step_time is 20 % slower than the baseline: 10 ms to 12 ms; "
        f"{n_runs} of 5 needed runs recorded\n  try: pytest --tfperf-update again, or tfperf accept RUN.json of runs like this one"
    )


def test_five_runs_decide_times(new_place):
    cases = [
        (0.012, None, "REGRESSION"),
        (0.012, 0.3, "PASS"),
        (0.0101, None, "PASS"),
        (0.0095, None, "IMPROVED"),
        (0.0106, None, "INCONCLUSIVE"),
    ]
    for now, max_regression, verdict in cases:
        place = new_place()
        store(place, profile(step_time=0.010), times=5)
        assert timing(
            place, profile(step_time=now), max_regression=max_regression
        ).verdict == Verdict(verdict), (now, max_regression)


def test_a_slower_step_says_how_much_since_when_where_and_what_changed_besides(place):
    store(place, profile(step_time=0.010), times=10)
    environment = {**LAPTOP, "setting": {"tensorflow": "2.21.1", "precision": "float32"}}
    now = value("step_time", 0.012, settled=True, where="Map", **{"try": "prefetch"})
    found = timing(place, profile(step_time=now), environment)
    assert found.message.splitlines() == [
        "step_time is 20 % slower than the baseline: 10 ms to 12 ms, limit 5 %",
        "  where: Map",
        "  changed besides: tensorflow 2.21.0 → 2.21.1",
        "  measured: 18 to 22 % slower (99.5 % interval), against the last 10 runs",
        "  newest recorded: commit abc123",
        "  try: prefetch",
        "  if intended: pytest --tfperf-update",
    ]


def test_a_time_is_asked_for_where_it_is_limited_or_could_be_decided(new_place):
    alike, apart = [1, 1.002, 0.998, 1.001, 0.999], [1, 1.3, 0.8, 1.2, 0.9]
    cases = [  # recorded times and processor times ÷ 10 ms, max_regression, unasked
        (alike[:4], alike[:4], None, True),  # only a doubled time would be decided
        (alike, apart, None, False),
        (apart, alike, None, False),  # by processor time
        (apart, apart, None, True),
        (apart, apart, 0.05, False),
    ]
    for clock, processor, max_regression, unasked in cases:
        place = new_place()
        for one, other in zip(clock, processor, strict=True):
            store(place, profile(step_time=0.010 * one, step_cpu_time=0.010 * other, other_load=0))
        now = profile(step_time=0.0106, step_cpu_time=0.0101, other_load=0.0)
        [found] = compare(place, now, only=None, max_regression=max_regression)
        assert (found.verdict, found.is_unasked) == (Verdict.INCONCLUSIVE, unasked), clock
        assert not timing(place, now).is_unasked  # the run asks for times alone
    slow = profile(step_time=0.04, step_cpu_time=0.04, other_load=0.0)
    assert timing(place, slow).verdict is Verdict.REGRESSION


def test_a_time_without_stored_ones_is_asked_for_where_it_is_limited_or_stored_elsewhere(new_place):
    now = profile(step_time=0.012)
    for environment, max_regression, unasked, verdict in (
        (None, None, True, Verdict.INCONCLUSIVE),
        (None, 0.05, False, Verdict.INCONCLUSIVE),
        (SERVER, None, False, Verdict.INCOMPARABLE),  # of another machine class
    ):
        place = new_place()
        store(place, profile(retraces=0))
        if environment:
            store(place, profile(retraces=0, step_time=0.010), environment)
        found = compare(place, now, only=None, max_regression=max_regression)[-1]
        assert (found.verdict, found.is_unasked) == (verdict, unasked)


def busy(step_time, cpu, load=0.6):
    """A profile beside others, of a machine with four cores."""
    settled = value("step_time", step_time, settled=True)
    return profile(step_time=settled, step_cpu_time=cpu, other_load=load)


def quiet(step_time, cpu):
    return busy(step_time, cpu, load=0.0)


def test_processor_time_decides_a_regression_where_the_clock_does_not(place):
    store(place, quiet(0.010, 0.015), times=5)
    found = timing(place, busy(0.045, 0.030))
    assert (found.metric, found.verdict) == ("step_cpu_time", Verdict.REGRESSION)
    first, *lines = found.message.splitlines()
    assert first == "step_cpu_time is 2 times more than the baseline: 15 ms to 30 ms, limit 5 %"
    assert any(
        line.startswith("  the clock: does not decide: step_time is 4.5 times slower than")
        for line in lines
    )
    assert not any("slower" in line for line in lines if line.startswith("  measured"))


def test_processor_time_makes_no_pass(place):
    store(place, quiet(0.010, 0.015), times=5)
    found = timing(place, busy(0.045, 0.015))
    assert (found.metric, found.verdict) == ("step_time", Verdict.INCONCLUSIVE)
    assert "\n  processor time: step_cpu_time is 0 % more than the baseline" in found.message
    assert "it shows no regression" in found.message


def test_what_load_may_move_processor_time_by_is_no_regression(place):
    store(place, quiet(0.010, 0.015), times=5)
    for times, verdict in [(1.25, Verdict.INCONCLUSIVE), (1.35, Verdict.REGRESSION)]:
        assert timing(place, busy(0.045, times * 0.015)).verdict is verdict, times


def test_beside_a_clock_that_passes_processor_time_is_shown_and_does_not_gate(place):
    store(place, quiet(0.010, 0.015), times=5)
    found = timing(place, quiet(0.010, 0.030))
    assert (found.metric, found.verdict) == ("step_time", Verdict.PASS)
    shown = "processor time: step_cpu_time is 2 times more than the baseline: 15 ms to 30 ms"
    assert f"{shown}, limit 5 %; it does not gate beside the clock" in found.message


def test_where_both_times_are_red_it_is_one_message_of_the_clock(place):
    store(place, quiet(0.010, 0.015), times=5)
    found = timing(place, quiet(0.020, 0.030))
    assert (found.metric, found.verdict) == ("step_time", Verdict.REGRESSION)
    assert "processor time: step_cpu_time is 2 times more" in found.message
    assert "does not gate" not in found.message


def test_a_quiet_run_is_not_compared_as_if_busy_ones_had_been_quiet(place):
    store(place, busy(0.040, 0.015), times=6)
    for now, verdict in [
        (quiet(0.010, 0.015), Verdict.INCONCLUSIVE),  # by the clock it is four times faster
        (quiet(0.020, 0.015), Verdict.INCONCLUSIVE),  # it may be slower than they were
    ]:
        assert timing(place, now).verdict is verdict, now.step_time
    assert timing(place, quiet(0.020, 0.030)).metric == "step_cpu_time"


def test_from_the_first_recorded_run_on_three_times_the_work_is_found(place):
    store(place, busy(0.040, 0.015))
    found = timing(place, busy(0.090, 0.045, load=0.9))
    assert (found.metric, found.verdict) == ("step_cpu_time", Verdict.REGRESSION)
    found = timing(place, busy(0.120, 0.015, load=0.9))
    assert (found.metric, found.verdict) == ("step_time", Verdict.INCONCLUSIVE)


def test_the_time_on_an_accelerator_decides_as_processor_time_does(place):
    def on_gpu(step_time, device, load):
        return profile(step_time=step_time, device_time=device, other_load=load)

    store(place, on_gpu(0.010, 0.008, 0.0), times=5)
    for device, verdict in [(0.008, Verdict.INCONCLUSIVE), (0.010, Verdict.REGRESSION)]:
        found = timing(place, on_gpu(0.045, device, 0.6))
        assert found.verdict is verdict, device
    assert found.metric == "device_time"
    first = found.message.splitlines()[0]
    assert first == "device_time is 25 % more than the baseline: 8 ms to 10 ms, limit 5 %"


@pytest.mark.parametrize(("before", "now"), [(0.0, 0.008), (0.008, 0.0), (0.0, 0.0)])
def test_a_device_that_did_not_work_has_no_time_to_compare(place, before, now):
    store(place, profile(step_time=0.010, device_time=before, other_load=0.0), times=5)
    for only in ("timing", None):
        now_on_gpu = profile(step_time=0.045, device_time=now, other_load=0.6)
        [found] = [one for one in compare(place, now_on_gpu, only=only) if one.is_of_step_time]
        assert (found.metric, found.verdict) == ("step_time", Verdict.INCONCLUSIVE)


def test_a_baseline_without_processor_times_is_compared_as_far_as_it_goes(place):
    store(place, profile(step_time=0.010), times=5)
    assert timing(place, quiet(0.010, 0.015)).verdict is Verdict.PASS
    found = timing(place, busy(0.045, 0.030))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.message.count("processor time: the baseline has none yet") == 1


@pytest.mark.parametrize("n_runs", [1, 10])
def test_times_of_steps_that_had_not_settled_are_not_decided(place, n_runs):
    store(place, profile(step_time=0.010), times=n_runs)
    found = timing(place, profile(step_time=value("step_time", 0.1, settled=False)))
    assert (found.verdict, found.message.partition(" ms: ")[2]) == (
        Verdict.INCONCLUSIVE,
        "the input buffers were still draining",
    )


def test_the_tolerance_is_shown_as_wanted(place):
    store(place, profile(step_time=0.010))
    assert (
        timing(place, profile(step_time=0.012), max_regression=0.1).wanted == "at most 10 % slower"
    )


def test_another_machine_class_is_incomparable_with_the_fields_that_differ_and_why_they_matter(
    place,
):
    store(place, profile(step_time=0.010))
    other = {**LAPTOP, "machine": {**LAPTOP["machine"], "cores": 8}}
    found = timing(place, profile(step_time=0.012), other)
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.message.splitlines()[0] == (
        "step_time is 12 ms; it is stored for another machine class "
        "(cores: stored 4, here 8 (matters: TensorFlow sizes its thread pools by them))"
    )


def test_the_nearest_machine_class_is_named(place):
    other = {**LAPTOP, "machine": {**LAPTOP["machine"], "cores": 8}}
    for environment in (SERVER, LAPTOP):
        store(place, profile(step_time=0.010), environment)
    assert "(cores: stored 4, here 8 (" in timing(place, profile(step_time=0.012), other).message


def test_a_history_without_a_step_time_is_none(place):
    store(place, profile(step_time=0.010))
    path = place.timing_file(LAPTOP["machine"])
    path.write_text(path.read_text().replace('"step_time"', '"epoch_gap"'))
    found = timing(place, profile(step_time=0.012))
    assert (found.verdict, found.message.splitlines()[0]) == (
        Verdict.INCONCLUSIVE,
        "step_time is 12 ms; its history has no step time",
    )


def test_a_time_that_is_not_stored_anywhere_is_not_decided(place):
    store(place, profile(retraces=0))
    found = timing(place, profile(step_time=0.012))
    assert (found.verdict, found.message.splitlines()[0]) == (
        Verdict.INCONCLUSIVE,
        "step_time is 12 ms; no timing is stored for it",
    )


def test_a_time_that_is_stored_for_another_workload_is_not_decided(place):
    workload = {"batch": 16}
    store(place, profile(step_time=0.010))
    store(place, profile(workload=workload, step_time=value("step_time", 0.010, settled=False)))
    found = timing(place, profile(workload=workload, step_time=0.012))
    assert (found.verdict, found.message.splitlines()[0]) == (
        Verdict.INCONCLUSIVE,
        "step_time is 12 ms; it is stored for another workload",
    )


def test_an_unknown_time_is_a_check_only_where_one_was_asked_for(place):
    store(place, profile(retraces=0))
    assert [one.metric for one in compare(place, profile(retraces=0), only=None)] == ["retraces"]
    for only, limit, verdict in (
        (None, 0.05, Verdict.UNKNOWN),
        ("timing", 0.05, Verdict.UNKNOWN),
        ("timing", None, Verdict.INCONCLUSIVE),
    ):
        found = compare(place, profile(retraces=0), only=only, max_regression=limit)[-1]
        assert (found.verdict, found.message) == (verdict, "step_time is unknown: not measured")


def test_a_time_that_is_stored_and_unknown_now_is_unknown(place):
    store(place, profile(step_time=0.1))
    found = timing(place, profile(retraces=0))
    assert (found.verdict, found.message) == (Verdict.UNKNOWN, "step_time is unknown: not measured")


def test_only_leaves_one_kind_in(new_place):
    cases = [
        (None, ["retraces", "xla_clusters", "step_time"]),
        ("structural", ["retraces", "xla_clusters"]),
        ("timing", ["step_time"]),
    ]
    for only, metrics in cases:
        place = new_place()
        measured = profile(retraces=0, xla_clusters=1, step_time=0.1)
        store(place, measured)
        assert [found.metric for found in compare(place, measured, only=only)] == metrics, only


def test_every_check_names_its_profile(place):
    measured = profile("eval", retraces=0, step_time=0.1)
    store(place, measured)
    assert {found.profile for found in compare(place, measured, only=None)} == {"eval"}


def test_a_damaged_file_of_times_leaves_the_structure_decided(place):
    store(place, profile(retraces=0, step_time=0.1))
    path = place.timing_file(LAPTOP["machine"])
    path.write_text("{")
    found = compare(place, profile(retraces=1, step_time=0.012), only=None)
    assert [(one.metric, one.verdict.value) for one in found] == [
        ("retraces", "REGRESSION"),
        ("step_time", "UNKNOWN"),
    ]
    assert found[1].message.startswith(
        f"step_time is 12 ms, and is compared with nothing: baseline {path}: not JSON"
    )


def exchange_kinds(place):
    """Put structure where times belong and the reverse, each under the other's keys."""
    timing = place.timing_file(LAPTOP["machine"])
    structure, times = (json.loads(path.read_text()) for path in (place.structure, timing))
    entries = structure["tests"], times["tests"]
    structure["tests"] = {place.timing_key(key): entry for key, entry in entries[0].items()}
    times["tests"] = {key.rpartition("::")[2]: entry for key, entry in entries[1].items()}
    return timing, json.dumps(structure), json.dumps(times)


def test_a_file_of_times_where_structure_is_expected_is_refused(place):
    store(place, profile(retraces=0, step_time=0.1))
    _, _, times = exchange_kinds(place)
    place.structure.write_text(times)
    for only in (None, "timing", "structural"):
        with pytest.raises(BaselineError) as refusal:
            compare(place, profile(retraces=0, step_time=0.1), only=only)
        assert str(refusal.value) == (
            f"baseline {place.structure}: not a file of the structure; restore it from git, or "
            "delete it and run --tfperf-update"
        )


def test_structure_where_times_are_expected_leaves_the_time_unknown(place):
    store(place, profile(retraces=0, step_time=0.1), times=5)
    timing, structure, _ = exchange_kinds(place)
    timing.write_text(structure)
    found = compare(place, profile(retraces=0, step_time=0.1), only=None)
    assert [(one.metric, one.verdict.value) for one in found] == [
        ("retraces", "PASS"),
        ("step_time", "UNKNOWN"),
    ]
    assert f"baseline {timing}: not a file of the step times of a machine" in found[1].message


def test_an_odd_file_among_those_of_other_machines_changes_nothing(new_place):
    """A folder of tests that is named timing, too, has its structure there."""
    for content in ["structure", "{", "<<<<<<< HEAD"]:
        place = new_place()
        store(place, profile(retraces=0, step_time=0.010))
        _, structure, _ = exchange_kinds(place)
        (place.timing / "a.json").write_text(structure if content == "structure" else content)
        measured = profile(retraces=0, step_time=0.010)
        assert timing(place, measured).verdict is Verdict.INCONCLUSIVE, content
        found = timing(place, measured, SERVER)
        assert found.verdict is Verdict.INCOMPARABLE, content
        assert "it is stored for another machine class (accelerators: " in found.message, content


def test_comparing_writes_nothing(place):
    compare(place, profile(retraces=0, step_time=0.1), only=None)
    assert not place.structure.parent.exists()


@pytest.mark.parametrize(
    ("inputs", "verdict"),
    [(["int32[4,?]"], Verdict.INCONCLUSIVE), (["int32[?,4]"], Verdict.REGRESSION)],
)
def test_metrics_of_varying_shapes_are_not_decided(place, inputs, verdict):
    before, now = (
        replace(profile(flops=number), workload={"inputs": inputs, "batch": 4})
        for number in (5e9, 6e9)
    )
    found = the_check(place, before, now)
    assert found.verdict == verdict


def test_a_profile_is_compared_with_another_one_which_is_named():
    before, now = (
        profile("train", retraces=n, xla_clusters=1, eager_ops=ops)
        for n, ops in ((0, Value.unknown("eager_ops", "?")), (1, 2))
    )
    found = against_profile(now, before, "origin/main", "against")
    assert {(one.kind, one.profile) for one in found} == {("against", "train")}
    assert [(one.metric, one.verdict.value, one.message, one.wanted) for one in found] == [
        (
            "retraces",
            "REGRESSION",
            "retraces rose from 0 to 1\n  if intended: run with --tfperf-only timing, until origin/main has it too",
            "0 (origin/main)",
        ),
        ("eager_ops", "NEW", "eager_ops is 2, and origin/main has none", "a value in origin/main"),
        ("xla_clusters", "PASS", "xla_clusters is 1, as in origin/main", "1 (origin/main)"),
    ]


@pytest.mark.parametrize(("now", "said"), [(0.3, ["input_bound 2 % → 19 %"]), (0.1, [])])
def test_the_shares_that_changed_with_a_step_time_are_in_the_message_of_a_regression(
    place, now, said
):
    for bound in (0.01, 0.02, 0.03):
        store(place, profile(step_time=0.1, input_bound=bound, host_overhead=0.4))
    [check] = compare(
        place, profile(step_time=now, input_bound=0.19, host_overhead=0.41), only="timing"
    )
    assert check.detail["differences"] == [{"what": "input_bound 2 % → 19 %", "seconds": None}]
    assert [line.strip() for line in check.message.splitlines() if "input_bound" in line] == said


def pipeline(*stages):
    """A profile of a pipeline with these stages: (type, Python, line)."""
    columns = tuple(Column(key, key) for key in ("stage", "python", "line"))
    made = profile(input_python_stages=sum(bool(python) for _, python, _ in stages))
    return replace(made, tables={"pipeline": Table.of("", columns, stages)})


def graph(**counts):
    """A profile of a graph with so many ops of each type, each at a line of its own."""
    columns = tuple(Column(key, key) for key in ("type", "before", "after", "line"))
    rows = [(kind, n, n, f"model.py:{place}") for place, (kind, n) in enumerate(counts.items(), 1)]
    made = profile(graph_ops=value("graph_ops", sum(counts.values()), where="most: Mul"))
    return replace(made, tables={"graph": Table.of("", columns, rows)})


SOURCE, MAP, END = ("Range", "", None), ("Map", "", None), ("Prefetch", "", None)
PYTHON_MAP = ("Map", "py_function", "data.py:7")


def test_a_py_function_in_a_map_is_a_regression_that_names_the_stage_and_its_line(place):
    found = the_check(place, pipeline(SOURCE, MAP, END), pipeline(SOURCE, PYTHON_MAP, END))
    assert found.verdict is Verdict.REGRESSION
    assert found.message.splitlines()[:2] == [
        "input_python_stages rose from 0 to 1",
        "  input stage Map runs Python now: py_function at data.py:7",
    ]


def test_an_inserted_stage_is_told_apart_from_its_neighbours(place):
    now = pipeline(SOURCE, MAP, PYTHON_MAP)
    found = the_check(place, pipeline(SOURCE, MAP, END), now)
    assert found.message.splitlines()[1:3] == [
        "  input stage Map is new, and runs Python: py_function at data.py:7",
        "  input stage Prefetch lost",
    ]


def test_new_op_types_come_first_with_their_lines_and_replace_the_most_frequent(place):
    before = graph(Const=38, Mul=73, Sub=60, Sum=4, Neg=7)
    now = graph(Const=40, Mul=74, Sub=61, Sum=5, Neg=8, Sin=1, CheckNumerics=1)
    found = the_check(place, before, now)
    assert found.details == (
        (
            "",
            "graph: CheckNumerics 0 → 1 (new, at model.py:7), Sin 0 → 1 (new, at model.py:6), "
            "Const 38 → 40, Mul 73 → 74, Neg 7 → 8, Sub 60 → 61, and 1 more",
        ),
    )


def test_lists_of_another_platform_and_entries_without_lists_explain_nothing(place):
    store(place, graph(Mul=1), environment=SERVER)
    entry = read_structure(place.structure)["test_step"]
    assert entry["op_types"] == {SERVER["platform"]: {"Mul": 1}}
    store(place, graph(Mul=1))
    entry = read_structure(place.structure)["test_step"]
    assert set(entry["op_types"]) == {SERVER["platform"], LAPTOP["platform"]}
    place.detail.unlink()
    [found] = compare(place, graph(Mul=2))
    assert (found.verdict, found.details) == (Verdict.REGRESSION, (("where", "most: Mul"),))


def test_the_same_stages_and_ops_are_recorded_once_and_unknown_ones_are_dropped(place):
    store(place, pipeline(SOURCE, MAP))
    entry = json.loads(place.structure.read_text())["tests"]["test_step"]
    assert entry["pipeline"] == ["Range", "Map"]
    again = record({place: [run_of(record_of(pipeline(SOURCE, MAP)))]}, False)
    assert again.entries == ()
    other = record({place: [run_of(record_of(pipeline(SOURCE, END)))]}, False)
    assert other.entries[0].what == "updated: the input pipeline's stages"
    store(place, profile(retraces=0))
    assert "pipeline" not in json.loads(place.structure.read_text())["tests"]["test_step"]


def test_what_is_missing_is_added_and_what_is_there_is_kept(place):
    store(place, profile(retraces=0))
    record({place: [run_of(record_of(pipeline(SOURCE, MAP)))]}, True)
    record({place: [run_of(record_of(pipeline(SOURCE, END)))]}, True)
    entry = json.loads(place.structure.read_text())["tests"]["test_step"]
    assert entry["pipeline"] == ["Range", "Map"]


def test_damaged_lists_are_an_error_of_the_baseline(new_place):
    cases = [
        {"pipeline": "Range"},
        {"pipeline": [1]},
        {"op_types": ["Mul"]},
        {"op_types": {"cpu": {"Mul": "one"}}},
        {"op_types": {"cpu": 3}},
        {"python_functions": ["a"]},
    ]
    for damaged in cases:
        place = new_place()
        store(place, graph(Mul=1))
        for path, entries in ((place.structure, "tests"), (place.detail, "lists")):
            before = path.read_text()
            content = json.loads(before)
            content[entries]["test_step"].update(damaged)
            path.write_text(json.dumps(content))
            if path == place.structure or "pipeline" not in damaged:
                found = refusal(BaselineError, compare, place, profile(retraces=0))
                assert f"{path}: damaged: Expected `" in found, damaged
            path.write_text(before)


def test_lists_lie_apart_from_the_figures_that_people_review(place):
    store(place, graph(Mul=1))
    assert "Mul" not in place.structure.read_text()
    assert "linguist-generated" in (place.detail.parent / ".gitattributes").read_text()
    figures = place.structure.read_bytes()
    [changed] = record({place: [run_of(record_of(graph(Add=1)))]}, False).entries
    assert (changed.path, changed.what) == (place.detail, "updated: ops by type")
    assert place.structure.read_bytes() == figures


def test_lists_are_read_where_the_version_before_wrote_them(place):
    store(place, graph(Mul=1))
    structure, detail = (json.loads(path.read_text()) for path in (place.structure, place.detail))
    structure["tests"]["test_step"]["op_types"] = detail["lists"]["test_step"]["op_types"]
    place.detail.unlink()
    place.structure.write_text(json.dumps(structure))
    assert "graph: Mul 1 → 2" in compare(place, graph(Mul=2))[0].lines
    store(place, graph(Mul=2))
    assert "Mul" not in place.structure.read_text()
    assert "Mul" in place.detail.read_text()


def test_lists_of_another_workload_explain_nothing(place):
    """As where a merge took the structure of one branch, and the lists of another."""
    store(place, graph(Mul=1))
    place.detail.write_text(place.detail.read_text().replace('"batch": 8', '"batch": 9'))
    assert not read_structure(place.structure)["test_step"].get("op_types")
    place.detail.write_text(place.structure.read_text())
    found = refusal(BaselineError, compare, place, graph(Mul=1))
    assert f"baseline {place.detail}: not a file of the detail" in found


def test_two_versions_of_a_program_name_new_ops_once():
    [found] = [
        one
        for one in against_profile(graph(Mul=1, Sin=2), graph(Mul=1), "main", "against")
        if one.metric == "graph_ops"
    ]
    assert [line for line in found.lines if line.startswith("graph:")] == [
        "graph: Sin 0 → 2 (new, at model.py:2)"
    ]


def test_a_numbered_profile_that_a_test_did_not_make_is_missing(place):
    profiles = [profile(name, step_time=0.010) for name in ("", "2", "3", "named")]
    record(
        {place: [run_of(record_of(*profiles), record_of(profile("2"), key="test_step_2"))]}, False
    )
    assert lost_numbers(Baseline(place), "test_step", ["", "2", "3"]) == []
    [lost] = lost_numbers(Baseline(place), "test_step", ["", "2"])
    assert (lost.verdict, lost.profile) == (Verdict.MISSING, "3")
    assert "has 'test_step/3', and the test made no such profile" in lost.message
    assert "give each profile of the test a name=" in lost.message


def test_the_files_of_a_test_file_are_read_once(place, monkeypatch):
    store(place, profile(step_time=0.010))
    read = []
    for module, name in ((compare_module, "read_structure"), (step_time, "read_times")):
        usual = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda path, usual=usual: read.append(path) or usual(path)
        )
    baseline = Baseline(place)
    for _ in range(3):
        assert compare_with_baseline(
            profile(step_time=0.010), "test_step", baseline, LAPTOP, None, None
        )
    assert read == [place.structure, place.timing_file(LAPTOP["machine"])]
