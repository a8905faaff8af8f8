"""The table of a run: what it shows of limits, comparisons and other metrics, and how it fits."""

from dataclasses import replace
from textwrap import dedent

import pytest
from helpers.builders import check, profile, record_of, value

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import Limit, check_limits
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.report.results_table import results_table
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import Source, Value

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


def named(name, checks):
    return [replace(one, profile=name) for one in checks]


def test_limits_have_value_bound_and_what_is_left():
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
        test           metric          value      limit      result
        -------------  ------------  -------  ---------  ----------
        test_parallel  step_time     22.2 ms  ≤ 44.4 ms   50 % left
                       input_bound     0.8 %      ≤ 5 %   84 % left
                                                ≥ 0.1 %  700 % left
                       xla_coverage     96 %     ≥ 80 %   20 % left
                       retraces            0        ≤ 0          ok
                       eager_ops           2        = 2          ok
        test_starved   step_time     22.2 ms
                       input_bound      61 %      ≤ 5 %        FAIL
        """)


def test_comparisons_have_the_value_before_and_the_change():
    measured = profile(step_time=0.0119, graph_ops=46, retraces=0, flops=631e6)
    checks = [
        compared("step_time", 679e-6, 0.0119, "REGRESSION", ratio=17.5),
        compared("graph_ops", 21, 46, "REGRESSION"),
        compared("retraces", 0, 0),
        compared("flops", 0, 631e6, "REGRESSION"),
    ]
    faster = profile("eval", step_time=0.0098)
    shown = [compared("step_time", 0.01, 0.0098, ratio=0.98)]
    tests = [record_of(measured, checks=checks), record_of(faster, checks=named("eval", shown))]
    assert text(*tests) == dedent("""\
        test            metric     before      after  change      result
        --------------  ---------  ------  ---------  ------  ----------
        test_step       step_time  679 µs    11.9 ms  × 17.5  REGRESSION
                        graph_ops      21         46  × 2.19  REGRESSION
                        flops      0 FLOP  631 MFLOP          REGRESSION
        test_step/eval  step_time   10 ms     9.8 ms    -2 %          ok
        """)


def test_a_change_is_a_percentage_until_it_is_a_doubling():
    for ratio, change in [
        (1, "0 %"),
        (1.00001, "0 %"),
        (1.0042, "+0.42 %"),
        (0.952, "-4.8 %"),
        (1.23, "+23 %"),
        (1.94, "+94 %"),
        (1.996, "× 2"),
        (2, "× 2"),
        (0.5, "÷ 2"),
        (1 / 17.04, "÷ 17"),
        (3836, "× 3,836"),
    ]:
        test = record_of(
            profile(step_time=1), checks=[compared("step_time", 1, ratio, ratio=ratio)]
        )
        line = text(test).splitlines()[-1]
        assert f"  {change}  " in line, ratio


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


def test_of_a_negative_limit_what_is_left_is_positive():
    gain = Metric("gain", "ratio", "lower", "machine", "a ratio that may be negative")
    measured = profile(step_time=0.001)
    own = Value(number=-10.0, unit="ratio", source=Source.OWN)
    measured = replace(measured, metrics={**measured.metrics, "gain": own}, own={"gain": gain})
    for relation, bound, left in (("max", -5.0, "100 % left"), ("min", -20.0, "50 % left")):
        limit = Limit(metric=gain, relation=relation, bound=bound, argument="")
        [found] = check_limits(measured, [limit], None, False)
        assert found.verdict is Verdict.PASS
        assert left in text(record_of(measured, key="test_step", checks=[found]))


def test_steps_that_differ_are_a_range_and_the_worst_counts():
    differing = value("xla_launches", 3, low=2, high=4, n_steps=20)
    line = text(limited(profile(xla_launches=differing), max_xla_launches=5)).splitlines()[-1]
    assert line.split() == ["test_step", "xla_launches", "2…4", "≤", "5", "20", "%", "left"]


def test_a_limit_of_a_run_file_without_its_bound_is_shown_as_written():
    old = check("PASS", sentence="input_bound 4 %, wanted at most 5 %")
    assert "at most 5 %      ok" in text(record_of(profile(input_bound=0.04), checks=[old]))


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
        "test       metric      value",
        "---------  ---------  ------",
        LONG,
        "           step_time  200 ms",
        "test_step  step_time  200 ms",
    ]
    assert text(*tests[:1], width=60).splitlines() == [
        "  metric      value",
        "  ---------  ------",
        LONG,
        "  step_time  200 ms",
    ]


def test_no_row_is_wider_than_the_terminal_and_no_name_is_cut():
    for width in [30, 40, 57, 64, 79, 80, 81, 160]:
        measured = profile(step_time=0.0222, input_bound=0.61)
        test = limited(measured, LONG, max_input_bound="5%", max_step_time="1 s")
        lines = text(test, width=width).splitlines()
        assert max(len(line) for line in lines if LONG not in line) <= width, width
        assert any(LONG in line for line in lines), width


def nine_tests():
    """Nine tests with a baseline and three limits each; the limit of one is broken."""
    for n in range(9):
        measured = profile(step_time=0.01, input_bound=0.06 if n == 4 else 0, retraces=0)
        test = limited(measured, f"test_{n}", max_input_bound="5%", max_retraces=0)
        against = compared("step_time", 0.01, 0.0101, ratio=1.01)
        coverage = compared("xla_coverage", 0.9, 0.8, gates=False)
        yield replace(test, checks=(*test.checks, against, coverage))


def test_of_many_rows_those_that_matter_fit_a_screen():
    def lines(*tests, brief):
        return [line.split() for line, _ in results_table(tests, 80, brief)[2:]]

    tests = list(nine_tests())
    assert len(lines(*tests, brief=False)) == 36
    shown = lines(*tests, brief=True)
    times = [
        [f"test_{n}", "step_time", "10", "ms", "10.1", "ms", "+1", "%", "ok"] for n in range(9)
    ]
    assert shown == [*times[:5], ["input_bound", "6", "%", "≤", "5", "%", "FAIL"], *times[5:]]
    long = [replace(test, key=f"{test.key}_of_the_tower_of_users") for test in tests]
    text = [line for line, _ in results_table(long, 80, brief=True)]
    assert "limit" not in text[0]
    assert len(text) == len(shown) + 2
    few = lines(*tests[:3], brief=True)  # without the change that does not gate
    assert [line[0] for line in few][::3] == ["test_0", "test_1", "test_2"]
    assert len(few) == 9


def test_a_consequence_is_left_out_before_its_cause_and_each_profile_has_a_row():
    checks = [
        compared("retraces", 0, 5, "REGRESSION"),
        replace(compared("xla_compiles", 0, 5, "REGRESSION"), follows="retraces"),
    ]
    caused = record_of(profile(step_time=0.01, retraces=5, xla_compiles=5), checks=checks)
    untimed = [limited(profile(retraces=0), f"test_{n}", max_retraces=0) for n in range(16)]
    shown = [line for line, _ in results_table([caused, *untimed], 80, brief=True)]
    assert not [line for line in shown if "xla_compiles" in line]
    assert [line for line in shown if "REGRESSION" in line and "retraces" in line]
    assert sum(line.startswith("test_") for line in shown[2:]) == 17


def test_a_limit_that_holds_stands_apart_from_a_comparison_that_is_open():
    measured = profile(step_time=0.02, retraces=5)
    open_time = compared("step_time", 0.019, 0.02, "INCONCLUSIVE", ratio=1.05)
    worse = compared("retraces", 0, 5, "REGRESSION")
    test = limited(measured, max_step_time="1 s", max_retraces=0)
    assert text(replace(test, checks=(*test.checks, open_time, worse))) == dedent("""\
        test       metric     before  after  change  limit        result
        ---------  ---------  ------  -----  ------  -----  ------------
        test_step  step_time   19 ms  20 ms    +5 %         INCONCLUSIVE
                                                     ≤ 1 s     98 % left
                   retraces        0      5            ≤ 0          FAIL
        """)


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
