"""The table of a run: what it shows of limits, comparisons and other metrics, and how it fits."""

from dataclasses import replace
from textwrap import dedent

import pytest
from helpers.builders import check, profile, record_of, value

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.report.run_text import results_table
from pytest_tfperf.results import Verdict

LONG = "TestModels::test_train_step[resnet50-batch_size_256-mixed_bfloat16]"


def text(*tests, width=80):
    return "".join(f"{line}\n" for line, _ in results_table(tests, width))


def limited(measured, key="test_step", **limits):
    return record_of(
        measured, key=key, checks=check_limits(measured, Wanted.read(limits).limits, None, False)
    )


def compared(metric, before, after, verdict="PASS", **detail):
    sentence = f"{metric} is {after}"
    detail = {"before": before, "after": after, **detail}
    return check(verdict, metric, sentence, kind="against", detail=detail)


def test_limits_have_value_bound_and_margin():
    fast = profile(step_time=0.0222, input_bound=0.008, xla_coverage=0.96, retraces=0, eager_ops=2)
    limits = {
        "max_step_time": "44.4 ms",
        "max_input_bound": "5%",
        "min_input_bound": "0.1%",
        "min_xla_coverage": 0.8,
    }
    counts = {"max_retraces": 0, "eager_ops": 2}
    starved = profile(step_time=0.0222, input_bound=0.61)
    assert text(
        limited(fast, "test_parallel", **limits, **counts),
        limited(starved, "test_starved", max_input_bound="5%"),
    ) == dedent("""\
        test           metric          value      limit  margin
        -------------  ------------  -------  ---------  ------
        test_parallel  step_time     22.2 ms  ≤ 44.4 ms    50 %
                       input_bound     0.8 %      ≤ 5 %    84 %
                                                ≥ 0.1 %   700 %
                       xla_coverage     96 %     ≥ 80 %    20 %
                       retraces            0        ≤ 0      ok
                       eager_ops           2        = 2      ok
        test_starved   step_time     22.2 ms
                       input_bound      61 %      ≤ 5 %    FAIL
        """)


def test_comparisons_have_the_value_before_and_the_change():
    measured = profile(step_time=0.0119, graph_ops=46, retraces=0, flops=631e6)
    checks = [
        compared("step_time", 679e-6, 0.0119, "REGRESSION", ratio=17.5),
        compared("graph_ops", 21, 46, "REGRESSION"),
        compared("retraces", 0, 0),
        compared("flops", 0, 631e6, "REGRESSION"),
    ]
    assert text(record_of(measured, checks=checks)) == dedent("""\
        test       metric         value  before             change
        ---------  ---------  ---------  ------  -----------------
        test_step  step_time    11.9 ms  679 µs  17.5 times slower
                   graph_ops         46      21             × 2.19
                   flops      631 MFLOP  0 FLOP
        """)


def test_zeros_that_nobody_asked_for_are_left_out():
    measured = profile(step_time=0.001, input_bound=0, retraces=3, eager_ops=0)
    assert [line.split() for line in text(record_of(measured)).splitlines()[2:]] == [
        ["test_step", "step_time", "1", "ms"],
        ["retraces", "3"],
    ]


def test_custom_metrics_are_shown_where_nobody_limits_anything():
    tokens = Metric("tokens", "1/s", "higher", "machine", "tokens a second")
    measured = profile(step_time=0.001)
    own = replace(
        measured,
        metrics={**measured.metrics, "tokens": value("step_time", 128)},
        own={"tokens": tokens},
    )
    assert "tokens" in text(record_of(own))


def test_steps_that_differ_are_a_range_and_the_worst_counts():
    differing = value("xla_launches", 3, low=2, high=4, n_steps=20)
    line = text(limited(profile(xla_launches=differing), max_xla_launches=5)).splitlines()[-1]
    assert line.split() == ["test_step", "xla_launches", "2…4", "≤", "5", "20", "%"]


def test_a_limit_of_a_run_file_without_its_bound_is_shown_as_written():
    old = check("PASS", sentence="input_bound 4 %, wanted at most 5 %")
    assert "at most 5 %    PASS" in text(record_of(profile(input_bound=0.04), checks=[old]))


def test_rows_have_the_colour_of_their_verdict():
    for verdict, colour in [
        ("PASS", None),
        ("FAIL", "red"),
        ("UNKNOWN", "red"),
        ("INCONCLUSIVE", "yellow"),
    ]:
        test = record_of(profile(input_bound=0.04), checks=[check(verdict)])
        assert results_table([test], 80)[-1][1] == colour, verdict


def test_a_name_that_is_too_long_stands_above_its_rows():
    tests = [record_of(profile(step_time=0.2), key=key) for key in (LONG, "test_step")]
    assert text(*tests, width=60).splitlines() == [
        "  metric      value",
        "  ---------  ------",
        LONG,
        "  step_time  200 ms",
        "test_step",
        "  step_time  200 ms",
    ]


def test_no_row_is_wider_than_the_terminal_and_no_name_is_cut():
    for width in [30, 40, 57, 64, 79, 80, 81, 160]:
        measured = profile(step_time=0.0222, input_bound=0.61)
        test = limited(measured, LONG, max_input_bound="5%", max_step_time="1 s")
        lines = text(test, width=width).splitlines()
        assert max(len(line) for line in lines if LONG not in line) <= width, width
        assert any(LONG in line for line in lines), width


def test_a_test_without_profiles_has_no_row():
    assert text(record_of()) == ""


@pytest.mark.parametrize("missing", [True, False])
def test_a_passed_limit_whose_value_is_missing_has_no_margin(missing):
    """A run file of another program may say so; this one writes none."""
    measured = profile(step_time=0.1, retraces=0)
    record = limited(measured, max_input_bound="5%", max_retraces=0)
    passed = tuple(replace(one, verdict=Verdict.PASS) for one in record.checks)
    metrics = {name: one for name, one in measured.metrics.items() if name != "input_bound"}
    kept = replace(measured, metrics=metrics if missing else measured.metrics)
    assert "?  ≤ 5 %      ok" in text(replace(record, profiles=(kept,), checks=passed))


def test_a_limit_without_its_relation_is_shown_as_text():
    record = limited(profile(step_time=0.1, retraces=0), max_retraces=0)
    checks = tuple(replace(one, detail={"bound": 0}) for one in record.checks)
    assert "at most 0" in text(replace(record, checks=checks)).replace("  ", " ")


def test_a_step_time_of_nothing_has_no_ratio():
    record = record_of(profile(step_time=0.1), checks=[compared("step_time", 0.1, 0.0)])
    assert "100 ms" in text(record)


def test_a_name_of_several_lines_is_one_line():
    measured = profile("a\nb", step_time=0.1)
    lines = text(record_of(measured, key="test\nx")).splitlines()
    assert len(lines) == 3
    assert "test x/a b" in lines[-1]
