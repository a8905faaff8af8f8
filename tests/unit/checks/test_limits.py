"""Limits: how they are read, and what they say of a profile."""

import math
import re
from dataclasses import replace

import pytest
from helpers.builders import profile, value
from helpers.refusals import refusal

from pytest_tfperf.checks.arguments import Wanted, argument_names, parse_limit_lines, parse_steps
from pytest_tfperf.checks.limits import asked_for, check_limits, explanation
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import TIME_CAUSES, Column, Table, Value


def decide(measured, only=None, shared_cpu=False, **limits):
    return check_limits(measured, Wanted.read(limits).limits, only, shared_cpu)


def the_check(measured, **limits):
    [found] = decide(measured, **limits)
    return found


AT_THE_BOUNDARY = [
    ("max_input_bound", 0.05, 0.05, "PASS"),
    ("max_input_bound", 0.05, math.nextafter(0.05, 1), "FAIL"),
    ("max_input_bound", 0.05, math.nextafter(0.05, 0), "PASS"),
    ("max_input_bound", "35%", 0.35, "PASS"),
    ("max_input_bound", 0, 0.0, "PASS"),
    ("max_step_time", "20 ms", 0.020, "PASS"),
    ("max_step_time", "20 ms", math.nextafter(0.020, 1), "FAIL"),
    ("max_peak_memory", "1 KiB", 1024, "PASS"),
    ("max_peak_memory", "1 KiB", 1025, "FAIL"),
    ("max_retraces", 0, 0, "PASS"),
    ("max_retraces", 0, 1, "FAIL"),
    ("min_xla_coverage", "35%", 0.35, "PASS"),
    ("min_xla_coverage", "35%", math.nextafter(0.35, 0), "FAIL"),
    ("min_xla_coverage", "35%", math.nextafter(0.35, 1), "PASS"),
    ("min_throughput", "100/s", 100.0, "PASS"),
    ("min_throughput", "100/s", math.nextafter(100, 0), "FAIL"),
    ("min_xla_clusters", 1, 1, "PASS"),
    ("min_xla_clusters", 1, 0, "FAIL"),
    ("xla_clusters", 1, 1, "PASS"),
    ("xla_clusters", 1, 0, "FAIL"),
    ("xla_clusters", 1, 2, "FAIL"),
    ("xla_clusters", 0, 0, "PASS"),
]


def test_a_limit_holds_up_to_its_bound_and_no_further():
    for argument, bound, measured, verdict in AT_THE_BOUNDARY:
        metric = argument.removeprefix("max_").removeprefix("min_")
        assert the_check(profile(**{metric: measured}), **{argument: bound}).verdict == verdict, (
            argument,
            bound,
            measured,
        )


def test_every_step_must_keep_the_limit():
    cases = [
        ("max_xla_launches", 5, "PASS"),
        ("max_xla_launches", 4, "FAIL"),
        ("min_xla_launches", 2, "PASS"),
        ("min_xla_launches", 3, "FAIL"),
        ("xla_launches", 3, "FAIL"),
        ("xla_launches", 2, "FAIL"),
        ("xla_launches", 5, "FAIL"),
    ]
    for argument, bound, verdict in cases:
        differing = value("xla_launches", 3, low=2, high=5, n_steps=20)
        assert the_check(profile(xla_launches=differing), **{argument: bound}).verdict == verdict, (
            argument,
            bound,
        )


def test_steps_that_differ_are_shown_as_a_range():
    differing = value("xla_launches", 3, low=2, high=5, n_steps=20)
    message = the_check(profile(xla_launches=differing), max_xla_launches=4).message
    assert (
        message == "xla_launches is 2 to 5 over 20 steps, above the limit of 4 (max_xla_launches=4)"
    )


def test_a_failure_says_measured_value_limit_argument_where_and_try():
    slow = value("input_bound", 0.09, where="90 % in Map", observed=0.09, **{"try": "prefetch"})
    failed = the_check(profile("train", input_bound=slow), max_input_bound="5%")
    assert failed.message.splitlines() == [
        "input_bound is 9 %, above the limit of 5 % (max_input_bound='5%')",
        "  where: 90 % in Map",
        "  try: prefetch",
    ]
    assert (failed.profile, failed.metric, failed.kind, failed.wanted) == (
        "train",
        "input_bound",
        "limit",
        "at most 5 %",
    )


def test_a_time_names_python_beside_the_largest_cause_and_other_parts_from_a_tenth():
    columns = [Column(key, key) for key in ("metric", "part", "seconds", "share", "where", "try")]
    rows = [
        ("step_time", "other", 0.08, 0.80, "Python", "less"),
        ("step_time", "host_compute", 0.006, 0.06, "ops", "fuse"),
        ("step_time", "other", 0.004, 0.04, "eagerly", "jit"),
    ]
    table = Table.of("What takes the time", columns, rows)
    slow = replace(profile(step_time=0.1), tables={TIME_CAUSES: table})
    message = the_check(slow, max_step_time="10 ms").message
    assert "80 % of the time: Python" in message
    assert "4 % of the time: eagerly" in message
    assert "ops" not in message
    assert [line for line in message.splitlines() if "try" in line] == ["  try: less", "  try: jit"]
    for metric, number, is_explained in [
        ("step_cpu_time", 0.2, False),  # which waits do not take
        ("step_time_p99", 0.15, True),
        ("step_time_p99", 0.16, False),  # the slow steps may differ from the mean one
    ]:
        measured = replace(profile(step_time=0.1, **{metric: number}), tables=slow.tables)
        message = the_check(measured, **{f"max_{metric}": "10 ms"}).message
        assert ("Python" in message) is is_explained, (metric, number)


def test_a_failure_by_less_than_is_written_says_the_numbers_exactly():
    message = the_check(profile(input_bound=0.05001), max_input_bound="5%").message
    assert (
        message
        == "input_bound is 5 %, above the limit of 5 % (max_input_bound='5%') (exactly 0.05001 and 0.05)"
    )


def test_a_pass_says_measured_value_and_limit():
    assert (
        the_check(profile(xla_clusters=1), xla_clusters=1).message
        == "xla_clusters is 1, limit exactly 1"
    )
    assert (
        the_check(profile(throughput=120), min_throughput=100).message
        == "throughput is 120 examples/s, limit at least 100 examples/s"
    )


def test_an_explanation_says_over_how_many_steps_and_how_it_was_corrected():
    detail = {
        "n_steps": 79,
        "n_epoch_ends": 2,
        "corrected": "buffers drained",
        "where": "",
        "low": 1,
    }
    assert explanation(value("retraces", 3, **detail)) == (
        (("over", "79 steps after the first and 2 epoch ends"), ("corrected", "buffers drained")),
        (),
    )


def test_a_limit_on_what_is_unknown_is_unknown_and_says_why():
    unknown = Value.unknown("epoch_gap", "no epoch ended in the timed window")
    found = the_check(profile(epoch_gap=unknown), max_epoch_gap="1 s")
    assert found.verdict is Verdict.UNKNOWN
    assert (
        found.message
        == "epoch_gap is unknown, limit 1 s (max_epoch_gap='1 s'): no epoch ended in the timed window"
    )


@pytest.mark.parametrize("measured", [0.04, 0.06])
def test_limits_on_times_are_unknown_while_other_workers_use_the_cpu(measured):
    [found] = decide(profile(input_bound=measured), max_input_bound=0.05, shared_cpu=True)
    assert found.verdict is Verdict.UNKNOWN
    assert (
        "limit 5 % (max_input_bound=0.05): other workers may have used the CPU; "
        "run with -n 0, or --tfperf-only structural" in found.message
    )


def test_limits_on_times_are_unknown_where_python_was_traced():
    cases = [("retraces", "FAIL"), ("input_bound", "UNKNOWN"), ("step_time", "UNKNOWN")]
    for metric, verdict in cases:
        measured = {
            "step_time": value("step_time", 7, instrumented=True),
            **({metric: 7} if metric != "step_time" else {}),
        }
        [found] = decide(profile(**measured), **{f"max_{metric}": 1})
        assert found.verdict == verdict, metric
        assert (
            "Python was traced meanwhile, by coverage or a debugger; run without (--no-cov)"
            in found.message
        ) == (verdict != "FAIL"), metric


def test_coverage_of_the_first_step_leaves_its_time_open_and_others_decided():
    first = value("first_step_time", 7, instrumented=True)
    measured = profile(first_step_time=first, step_time=7)
    for argument, most, verdict in [
        ("max_first_step_time", 1, "UNKNOWN"),
        ("max_first_step_time", 7, "PASS"),
        ("max_step_time", 1, "FAIL"),
    ]:
        [found] = decide(measured, **{argument: most})
        assert found.verdict == verdict, (argument, most)


def test_a_limit_that_a_disturbed_time_still_keeps_passes():
    """Work beside the step, and a tracer, can only make these worse; a wait for input may get shorter."""
    for metric, argument, kept in [
        ("step_time", "max_step_time", True),
        ("step_time_p90", "max_step_time_p90", True),
        ("first_step_time", "max_first_step_time", True),
        ("throughput", "min_throughput", True),
        ("step_time", "min_step_time", False),
        ("throughput", "max_throughput", False),
        ("input_wait", "max_input_wait", False),
        ("host_overhead", "max_host_overhead", False),
    ]:
        [found] = decide(profile(**{metric: 0.5}), **{argument: 0.5}, shared_cpu=True)
        assert found.verdict == ("PASS" if kept else "UNKNOWN"), argument
        worse = 0.4 if argument.startswith("max") else 0.6
        [found] = decide(profile(**{metric: 0.5}), **{argument: worse}, shared_cpu=True)
        assert found.verdict is Verdict.UNKNOWN, argument


def test_structure_is_decided_whoever_uses_the_cpu():
    cases = [("retraces", "FAIL"), ("xla_launches", "FAIL"), ("step_time", "UNKNOWN")]
    for metric, verdict in cases:
        [found] = decide(profile(**{metric: 7}), **{f"max_{metric}": 1}, shared_cpu=True)
        assert found.verdict == verdict, metric


def test_an_unknown_value_is_unknown_beside_other_workers():
    [found] = decide(profile(), max_step_time=1, shared_cpu=True)
    assert found.verdict is Verdict.UNKNOWN


def test_only_leaves_one_kind_of_limits_in():
    cases = [
        (None, ["step_time", "retraces", "xla_launches"]),
        ("structural", ["retraces", "xla_launches"]),
        ("timing", ["step_time"]),
    ]
    for only, left in cases:
        checks = decide(profile(), only, max_step_time=1, max_retraces=0, max_xla_launches=1)
        assert [found.metric for found in checks] == left, only


def test_every_metric_is_asked_for_under_exactly_one_kind():
    for metric in METRICS.values():
        assert asked_for(metric, None), metric
        assert asked_for(metric, "timing") == (metric.scope == "machine"), metric
        assert asked_for(metric, "structural") == (metric.scope in ("program", "platform")), metric


def test_every_metric_takes_its_limits():
    cases = [
        name
        for name in argument_names()
        if name.removeprefix("max_").removeprefix("min_") in METRICS
    ]
    for name in cases:
        [limit] = Wanted.read({name: 1}).limits
        assert (limit.metric.name, limit.bound) == (
            name.removeprefix("max_").removeprefix("min_"),
            1.0,
        ), name


def test_only_counts_can_be_limited_by_their_name_alone():
    equalities = set(argument_names()) & set(METRICS)
    assert equalities == {name for name, metric in METRICS.items() if metric.unit == COUNT}


def test_an_unknown_argument_is_refused_with_the_nearest():
    cases = [
        ("max_inputbound", "max_input_bound"),
        ("min_xla_clusterz", "min_xla_clusters"),
        ("retrace", "retraces"),
        ("warm_up", "warmup"),
        ("step_time", "max_step_time"),
        ("half_precision", "min_half_precision"),
    ]
    for argument, meant in cases:
        assert refusal(LimitError, Wanted.read, {argument: 0.05}) == (
            f"unknown argument '{argument}'; did you mean '{meant}'? `tfperf metrics` lists all"
        )


def test_equality_on_what_is_no_count_and_other_relations_are_refused():
    cases = [
        "input_bound",
        "flops",
        "step_time",
        "max_",
        "max",
        "",
        "avg_step_time",
        "max_max_step_time",
    ]
    for argument in cases:
        said = refusal(LimitError, Wanted.read, {argument: 1})
        assert said.startswith(f"unknown argument '{argument}'; "), argument


def test_a_refusal_lists_every_metric_and_option():
    with pytest.raises(LimitError) as refusal:
        Wanted.read({"zzz": 1})
    assert all(
        word in str(refusal.value) for word in [*METRICS, "max_regression", "ignore_findings"]
    )


def test_a_value_that_cannot_be_understood_is_refused_under_its_name():
    cases = [
        (
            {"max_input_bound": "5 ms"},
            "max_input_bound: '5 ms' is not a quantity; give a number, or one with a suffix of %",
        ),
        ({"max_input_bound": True}, "max_input_bound: True is not a quantity"),
        (
            {"max_step_time": "20"},
            "max_step_time: '20' has no unit; write '20 ms' or '20 s'$",
        ),
        (
            {"max_peak_memory": "4"},
            "max_peak_memory: '4' has no unit; write '4 MiB' or '4 GiB'$",
        ),
        (
            {"target_step_time": "12"},
            "target_step_time: '12' has no unit; write '12 ms' or '12 s'$",
        ),
        ({"max_input_bound": None}, "max_input_bound: None is not a quantity"),
        ({"max_input_bound": float("nan")}, "max_input_bound: nan is not a finite number"),
        ({"xla_clusters": "one"}, "xla_clusters: 'one' is not a quantity"),
        ({"max_regression": "5 ms"}, "max_regression: '5 ms' is not a quantity"),
        ({"max_regression": True}, "max_regression: True is not a quantity"),
        (
            {"max_regression": 5},
            "max_regression: 5 is 500 %: write 0.05 or '5%', or '500%' if you mean that$",
        ),
        ({"max_regression": "1.01"}, "max_regression: '1.01' is 101 %: write 0.0101 or '1.01%'"),
        ({"max_python_calls_regression": 2}, "max_python_calls_regression: 2 is 200 %: write 0.02"),
        (
            {"max_python_calls_regression": "-1%"},
            "max_python_calls_regression: '-1%' is below zero",
        ),
        ({"steps": 0}, "steps: 0 is not a positive whole number"),
        ({"warmup": 2.5}, "warmup: 2.5 is not a whole number"),
        ({"warmup": -1}, "warmup: -1 is not a whole number"),
        ({"steps": -1}, "steps: -1 is not a positive whole number"),
        ({"steps": "many"}, "steps: 'many' is not a whole number"),
        ({"steps": True}, "steps: True is not a whole number"),
        ({"trace_steps": None}, "trace_steps: None is not a whole number"),
        ({"latency": 1}, "latency: 1 is neither True nor False"),
        ({"autocluster": "yes"}, "autocluster: 'yes' is neither True nor False"),
        ({"target_step_time": "5%"}, "target_step_time: '5%' is not a quantity"),
        ({"tpu": 5}, "tpu: 5 is not a string"),
        ({"findings": 5}, "findings: 5 is not a name or a list of names"),
        ({"findings": ["a", 5]}, "findings: \\['a', 5\\] is not a name or a list of names"),
        ({"findings": "TRANSPOS"}, "findings: no finding 'TRANSPOS'; did you mean 'TRANSPOSE'\\?"),
        ({"ignore_findings": ["all"]}, "ignore_findings: no finding 'all'; valid: CATEGORICAL, "),
        ({"ignore_findings": None}, "ignore_findings: None is not a name or a list of names"),
    ]
    for arguments, said in cases:
        assert re.match(said, refusal(LimitError, Wanted.read, arguments)), arguments


def test_a_tolerance_above_the_whole_has_its_percent_sign():
    for given, tolerated in [(1, 1), ("100%", 1), ("500 %", 5), (0.05, 0.05)]:
        assert Wanted.read({"max_regression": given}).max_regression == tolerated, given


def test_every_option_is_read():
    given = {
        "max_regression": "5%",
        "max_python_calls_regression": 0,
        "warmup": 3,
        "steps": "7",
        "trace_steps": 4,
        "latency": True,
        "target_step_time": "12 ms",
        "tpu": "v5e",
        "autocluster": True,
        "findings": "UNFUSED_BN",
        "ignore_findings": ["TRANSPOSE", "CATEGORICAL"],
        "max_retraces": 0,
    }
    wanted = Wanted.read(given)
    assert (wanted.max_regression, wanted.warmup, wanted.steps, wanted.trace_steps) == (
        0.05,
        3,
        7,
        4,
    )
    assert wanted.max_python_calls_regression == 0
    assert (wanted.latency, wanted.target_step_time, wanted.tpu, wanted.autocluster) == (
        True,
        0.012,
        "v5e",
        True,
    )
    assert (wanted.findings, wanted.ignore_findings) == (
        ("UNFUSED_BN",),
        ("TRANSPOSE", "CATEGORICAL"),
    )
    assert [limit.argument for limit in wanted.limits] == ["max_retraces=0"]
    assert wanted.given == given


def test_arguments_are_none_by_default():
    assert Wanted.read({}) == Wanted()


def test_steps_are_positive_whole_numbers():
    for written, number in [(1, 1), ("10", 10), (3.0, 3), ("1e2", 100)]:
        assert parse_steps(written) == number, written


def test_limits_stand_on_lines_or_between_commas():
    cases = [
        ["max_input_bound = 5%", "xla_clusters = 1"],
        ["max_input_bound=5%,xla_clusters=1"],
        ["  max_input_bound =  5% , xla_clusters = 1,", ""],
    ]
    for lines in cases:
        assert parse_limit_lines(lines, "ini tfperf_limits") == {
            "max_input_bound": "5%",
            "xla_clusters": "1",
        }, lines


def test_no_lines_are_no_limits():
    assert parse_limit_lines([], "ini") == {}
    assert parse_limit_lines(["", "  ", ","], "ini") == {}


def test_a_line_that_cannot_be_understood_is_refused_with_its_place():
    cases = [
        ("max_input_bound", "'max_input_bound' is not of the form max_input_bound = 5%"),
        ("max_input_bound 5%", "'max_input_bound 5%' is not of the form max_input_bound = 5%"),
        ("max_input_bound =", "'max_input_bound =' is not of the form max_input_bound = 5%"),
        ("warmup = 3", "warmup is not a limit; set it on the marker, or as tfperf_warmup"),
        (
            "max_regression = 5%",
            "max_regression is not a limit; set it on the marker, or as tfperf_max_regression",
        ),
        (
            "max_inputbound = 5%",
            "unknown argument 'max_inputbound'; did you mean 'max_input_bound'[?]",
        ),
        ("max_input_bound = 5 ms", "max_input_bound: '5 ms' is not a quantity"),
        ("max_step_time = 20", "max_step_time: '20' has no unit; write '20 ms' or '20 s'"),
        ("max_input_bound == 5%", "max_input_bound: '= 5%' is not a quantity"),
        ("= 5%", "unknown argument ''"),
        ("max_retraces = 1", "max_retraces is set twice, to 0 and 1"),
    ]
    for line, said in cases:
        found = refusal(
            LimitError, parse_limit_lines, ["max_retraces = 0", line], "ini tfperf_limits"
        )
        assert re.match(f"ini tfperf_limits: {said}", found), line


def test_a_bound_that_no_value_can_reach_is_refused():
    cases = [
        ("max_input_bound", -0.01, "below zero"),
        ("max_input_bound", "101%", "above the whole; .* write 0.05 or '5%'$"),
        ("min_half_precision", 50, "above the whole; .* write 0.5 or '50%'$"),
        ("max_step_time", "-3 ms", "below zero"),
        ("max_kernel_launches", -1, "below zero"),
    ]
    for argument, given, message in cases:
        found = refusal(LimitError, Wanted.read, {argument: given})
        assert re.search(message, found), (argument, given)


def test_a_bound_at_the_end_of_what_is_possible_is_taken():
    cases = [("max_input_bound", 0), ("max_input_bound", "100%"), ("max_step_skew", "150%")]
    for argument, given in cases:
        assert Wanted.read({argument: given}).limits, given


def test_limits_know_their_metrics():
    wanted = Wanted.read({"max_flops": 10, "max_input_bound": "5%", "warmup": 3})
    assert [
        wanted.asks_for(names)
        for names in (["flops"], ["half_precision"], ["half_precision", "input_bound"], [])
    ] == [
        True,
        False,
        True,
        False,
    ]


def test_a_remedy_that_leaves_the_limit_broken_says_so():
    for left, said in [(0.3, False), (0.31, True), (None, False)]:
        found = value("batch_padding", 0.6, **({} if left is None else {"left": left}))
        check = the_check(profile(batch_padding=found), max_batch_padding=0.3)
        assert any("which is above the limit" in line for line in check.lines) == said, left


def test_a_value_that_traces_of_each_step_made_unknown_has_their_cause():
    why = "stopped after 6 steps, each traced again"
    traced = value("retraces", 5, where="traced again: step at t.py:3", **{"try": "make it once"})
    ended = {"retraces": traced, "step_time": Value.unknown("step_time", why)}
    check = the_check(replace(profile(**ended), ended=why), max_step_time=1)
    assert (check.verdict, check.lines) == (
        Verdict.UNKNOWN,
        ("where: traced again: step at t.py:3", "try: make it once"),
    )
    once = {**ended, "retraces": value("retraces", 0, where="")}
    assert the_check(replace(profile(**once), ended=why), max_step_time=1).lines == ()


def test_of_a_value_with_a_lower_bound_alone_the_reason_stands_where_it_decides_nothing():
    share = value(
        "input_bound", 0.2, low=0.2, high=1.0, at_least=True, bounds="waits may be hidden"
    )
    broken, open_ = (
        the_check(profile(input_bound=share), max_input_bound=one) for one in (0.1, 0.3)
    )
    assert (broken.verdict, open_.verdict) == (Verdict.FAIL, Verdict.UNKNOWN)
    assert "at least 20 %" in broken.sentence
    assert "waits" not in broken.sentence
    assert "at least 20 % (waits may be hidden)" in open_.sentence
