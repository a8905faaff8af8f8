"""CSV: the table as a whole, and that other programs read back what was in it."""

import csv
import io

from helpers.builders import check, profile, record_of, value
from helpers.golden import assert_golden
from helpers.sample_run import a_run, compared

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.report.csv import COLUMNS, render_csv
from pytest_tfperf.runs import Run


def rows(*tests):
    text = render_csv(Run(created="now", tests=tests))
    return list(csv.DictReader(io.StringIO(text, newline="")))


def row(metric, *tests):
    [found] = [one for one in rows(*tests) if one["metric"] == metric]
    return found


def test_the_table_as_a_whole():
    assert_golden("run.csv", render_csv(a_run()))


def test_each_metric_of_each_profile_has_a_row():
    found = rows(record_of(profile(), profile("eval")), record_of(profile(), key="other"))
    assert [(one["test"], one["profile"], one["metric"]) for one in found] == [
        (test, name, metric)
        for test, name in (("test_step", ""), ("test_step", "eval"), ("other", ""))
        for metric in METRICS
    ]


def test_a_run_without_profiles_has_only_titles():
    assert render_csv(Run(created="now", tests=())) == ",".join(COLUMNS) + "\n"


def test_unknown_values_are_empty_with_their_reason():
    test = record_of(profile(step_time=1 / 3, xla_launches=value("xla_launches", 2, low=1, high=3)))
    assert float(row("step_time", test)["value"]) == 1 / 3
    assert [
        row("xla_launches", test)[name] for name in ("value", "unit", "low", "high", "source")
    ] == [
        "2.0",
        "count",
        "1.0",
        "3.0",
        "trace",
    ]
    assert [row("retraces", test)[name] for name in ("value", "low", "high", "why")] == [
        "",
        "",
        "",
        "not measured",
    ]


def test_a_broken_limit_is_shown_among_several():
    checks = [
        check("PASS"),
        check("FAIL"),
        check("UNKNOWN", name="eval"),
        compared("IMPROVED", "input_bound", "", before=0.1, after=0.05),
    ]
    found = row("input_bound", record_of(profile(input_bound=0.05), checks=checks))
    assert (
        found["limit_verdict"],
        found["comparison_verdict"],
        found["before"],
        found["ratio"],
    ) == ("FAIL", "IMPROVED", "0.1", "0.5")


def test_a_step_time_has_its_interval():
    checks = [
        compared("PASS", "step_time", "", before=0.1, after=0.11, ratio=1.09, low=1.0, high=1.2)
    ]
    found = row("step_time", record_of(profile(step_time=0.11), checks=checks))
    assert [found[name] for name in ("before", "ratio", "ratio_low", "ratio_high")] == [
        "0.1",
        "1.09",
        "1.0",
        "1.2",
    ]


def test_characters_invalid_in_utf8_are_replaced():
    assert {one["test"] for one in rows(record_of(profile(), key="a\udcffb"))} == {"a\ufffdb"}


def test_any_text_survives_csv():
    name = 'test[a,"b"\r\n</script>😀]' + "x" * 10_000
    shown = name.replace("\r", "\ufffd")  # a control character, as a terminal would take it
    assert {one["test"] for one in rows(record_of(profile(), key=name))} == {shown}
