"""Which changes fail a test: for every metric a reason, and the same in every kind of comparison."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of

from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.baseline.structure import against_profile
from pytest_tfperf.gates import _GATES, ANY, MOVED, NEVER, RISE, WORSE, Gate, gate_of
from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.report.run_text import render
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import Value

# typed by hand: metrics for which a better program can be worse, one way or both
MOVED_BY_BETTER_PROGRAMS = {
    *("fusions", "graph_reduction", "half_precision"),
    *("padding_overhead", "mxu_padding_overhead", "input_capacity", "tensor_core_time"),
    *("device_busy", "collective_time", "input_bound", "host_overhead", "flops_utilization"),
}


def test_gates_are_of_metrics_and_name_others():
    assert set(_GATES) <= set(METRICS)
    assert {gate.unless for gate in _GATES.values()} <= {"", *METRICS}
    assert all(gate_of(metric).why for metric in METRICS.values())


def test_what_a_better_program_can_worsen_never_gates():
    assert {gate_of(METRICS[name]).change for name in MOVED_BY_BETTER_PROGRAMS} == {NEVER}


def test_of_times_only_those_of_a_step_gate():
    machine = [metric for metric in METRICS.values() if metric.scope == "machine"]
    assert [one.name for one in machine if gate_of(one).change != NEVER] == [
        "step_time",
        "step_cpu_time",
        "device_time",
    ]


def test_every_structural_metric_that_gates_has_a_reason_of_its_own():
    by_rule = [
        metric.name
        for metric in METRICS.values()
        if metric.scope != "machine" and metric.name not in _GATES
    ]
    assert all(METRICS[name].better == "lower" for name in by_rule), by_rule


def test_a_gate_closes_in_its_direction():
    for change, better, rises, falls in [
        (WORSE, "lower", True, False),
        (WORSE, "higher", False, True),
        (ANY, None, True, True),
        (RISE, None, True, False),
        (MOVED, "higher", False, True),
        (NEVER, "lower", False, False),
        (NEVER, None, False, False),
    ]:
        metric, gate = Metric("x", "count", better, "program", "x"), Gate(change, "because")
        assert (gate.closes(metric, 1, 2), gate.closes(metric, 2, 1)) == (rises, falls), (
            change,
            better,
        )


def test_a_tolerated_change_is_the_larger_of_a_share_and_a_number():
    for beyond, before, within, shown in [
        ((0.0, 0.0), 100, 0, ""),
        ((0.001, 0.0), 1_000_000, 1000, "0.1 %"),
        ((0.2, 50.0), 250, 50, "20 % or 50"),
        ((0.2, 50.0), 1000, 200, "20 % or 50"),
        ((0.2, 50.0), 0, 50, "20 % or 50"),
    ]:
        gate = Gate(WORSE, "because", beyond=beyond)
        assert gate.bounds("or") == shown
        for change in (within, -within):
            assert gate.tolerates(before, before + change)
        for change in (within + 1, -within - 1):
            assert not gate.tolerates(before, before + change)


def test_each_kind_of_comparison_shows_a_change_that_does_not_gate():
    before, after = (profile(graph_reduction=share) for share in (0.487, 0.252))
    [against] = against_profile(after, before, "main", "against")
    runs = [run_of(record_of(one, environment=LAPTOP)) for one in (before, after)]
    [[compared]] = [test.checks for test in compare_runs(*runs).tests]
    for found, kind in ((against, "against"), (compared, "compare")):
        assert (found.verdict, found.kind, found.is_shown_change) == (Verdict.PASS, kind, True)
        assert found.sentence == (
            "graph_reduction fell from 48.7 % to 25.2 %, which does not gate: "
            "it falls where there is less to remove"
        )


@pytest.mark.parametrize(("limit", "verdict"), [({}, "PASS"), ({"max_rise": 0.1}, "REGRESSION")])
def test_with_other_packages_metrics_of_the_platform_are_shown_unless_limited(limit, verdict):
    before, after = (profile(python_calls=number) for number in (100, 200))
    value = after.metrics["python_calls"].changed(detail=limit)
    after = replace(after, metrics={**after.metrics, "python_calls": value})
    [found] = against_profile(after, before, "keras 3.5.0", "against", is_same_platform=False)
    assert found.verdict is Verdict(verdict)
    assert found.is_shown_change == (verdict == "PASS")


def test_with_other_packages_a_value_that_became_unknown_fails_nothing():
    before, after = profile(graph_ops=10), profile()
    unknown = Value.unknown("graph_ops", "no graph was seen")
    after = replace(after, metrics={"graph_ops": unknown})
    for is_same, verdict in ((True, Verdict.UNKNOWN), (False, Verdict.INCONCLUSIVE)):
        [found] = against_profile(after, before, "x", "against", is_same_platform=is_same)
        assert found.verdict is verdict


def test_the_terminal_shows_it_as_changed_if_verbose_and_else_counts_it():
    before, after = (profile(graph_reduction=share, retraces=0) for share in (0.487, 0.252))
    checks = against_profile(after, before, "main", "against")
    run = run_of(record_of(after, checks=checks))
    [shown] = [line for line in render(run, 200, 1) if "does not gate" in line.text]
    assert shown.text.startswith("changed ")
    assert shown.colour is None
    [counted] = [line.text for line in render(run, 200, 0) if "not gate" in line.text]
    assert counted == "-v shows 1 change that does not gate"


def test_reports_show_it_among_what_changed():
    before, after = (profile(graph_reduction=share, retraces=0) for share in (0.487, 0.252))
    run = run_of(record_of(after, checks=against_profile(after, before, "main", "against")))
    text = render_markdown(run)
    [row] = [line for line in text.splitlines() if "| `graph_reduction` |" in line]
    assert "48.7 %" in row
    assert row.startswith("| changed |")
    assert "25.2 %" in row
    assert "1 value is as it was." in text
    page = render_html(run)
    assert "1 other is as before" in page
    assert ">changed</span>" in page
    assert "48.7 %" in page
    assert "25.2 %" in page
