"""An executable that vanished while its ops run outside XLA: a regression, and never praised."""

import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of

from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline
from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import read_structure
from pytest_tfperf.baseline.structure import against_profile
from pytest_tfperf.values import Source, Value

DENSE = {"MatMul": 2, "BiasAdd": 2, "Relu": 1}
UNTOLD = "the first file does not tell which ops XLA compiled"
LINE = "outside XLA: MatMul (XLA was not requested) at model.py:3"


@pytest.fixture
def place(new_place):
    return new_place()


def step(clusters, inside, outside, **metrics):
    """A profile of a step with these ops in XLA executables, and those outside."""
    share = sum(inside.values()) / ((sum(inside.values()) + sum(outside.values())) or 1)
    cause = {"where": LINE, "try": "jit_compile=True"} if outside else {}
    coverage = Value.of(
        "xla_coverage", share, Source.GRAPH, inside=inside, outside=outside, **cause
    )
    return profile(xla_clusters=clusters, xla_coverage=coverage, **metrics)


def untold(clusters, share=None, why="the step's functions hold 9,000 nodes"):
    """A profile of a step whose ops in XLA are not known."""
    coverage = Value.unknown("xla_coverage", why)
    if share is not None:
        coverage = Value.of("xla_coverage", share, Source.GRAPH)
    return profile(xla_clusters=clusters, xla_coverage=coverage)


def by_metric(checks):
    return {one.metric: one for one in checks}


def compared(before, after):
    [test] = compare_runs(run_of(record_of(before)), run_of(record_of(after))).tests
    return by_metric(test.checks)


def test_ops_that_leave_xla_are_a_regression_and_ops_that_go_are_none():
    lost = "XLA no longer compiles BiasAdd ×2, MatMul ×2, Relu: xla_clusters fell from 1 to 0"
    part = "XLA no longer compiles Relu: xla_coverage fell from 100 % to 80 %"
    cases = [
        # (clusters, ops inside, ops outside) before and after, metric, verdict, headline
        ((1, DENSE, {}), (0, {}, DENSE), "xla_clusters", "REGRESSION", lost),
        (
            (2, {**DENSE, "Tanh": 1}, {"Cast": 1}),
            (1, {"Tanh": 1}, {**DENSE, "Cast": 1}),
            "xla_clusters",
            "REGRESSION",
            lost.replace("1 to 0", "2 to 1"),
        ),
        (
            (1, DENSE, {}),
            (1, {"MatMul": 2, "BiasAdd": 2}, {"Relu": 1}),
            "xla_coverage",
            "REGRESSION",
            part,
        ),
        # the same share, since as much is gone from outside
        (
            (2, {**DENSE, "Tanh": 5}, {"Cast": 10}),
            (1, {"Tanh": 5}, DENSE),
            "xla_clusters",
            "REGRESSION",
            lost.replace("1 to 0", "2 to 1"),
        ),
        # the part that XLA compiled is gone, and other ops are as before
        (
            (2, {**DENSE, "Tanh": 1}, {"MatMul": 2}),
            (1, {"Tanh": 1}, {"MatMul": 2}),
            None,
            "PASS",
            "",
        ),
        # and another op came outside
        ((1, DENSE, {"Cast": 1}), (0, {}, {"Cast": 2}), None, "PASS", ""),
        # two executables became one
        ((2, DENSE, {"Cast": 1}), (1, DENSE, {"Cast": 1}), None, "PASS", ""),
        # fewer executables that hold more
        ((2, DENSE, {"Cast": 2}), (1, {**DENSE, "Cast": 1}, {"Cast": 1}), None, "PASS", ""),
        # XLA is given more
        ((0, {}, DENSE), (1, DENSE, {}), None, "PASS", ""),
    ]
    for before, after, metric, verdict, headline in cases:
        found = compared(step(*before), step(*after))
        red = {name: one.sentence for name, one in found.items() if one.verdict != "PASS"}
        assert red == ({metric: headline} if metric else {}), (before, after)
        assert metric is None or found[metric].verdict == verdict


def test_a_baseline_and_a_ref_decide_it_with_the_line_and_the_remedy(place):
    before, after = step(1, DENSE, {}), step(0, {}, DENSE)
    record({place: [run_of(record_of(before))]}, False)
    stored = compare_with_baseline(after, "test_step", Baseline(place), LAPTOP, "structural", None)
    ref = against_profile(after, before, "main", "against")
    for checks, meant in (
        (stored, "pytest --tfperf-update"),
        (ref, "run with --tfperf-only timing, until main has it too"),
    ):
        assert by_metric(checks)["xla_clusters"].message.splitlines() == [
            "XLA no longer compiles BiasAdd ×2, MatMul ×2, Relu: xla_clusters fell from 1 to 0",
            f"  where: {LINE}",
            "  try: jit_compile=True",
            f"  if intended: {meant}",
        ]


def test_ops_that_left_xla_lead_the_message_of_a_slower_step():
    before, after = step(1, DENSE, {}, step_time=1.0), step(0, {}, DENSE, step_time=9.0)
    assert compared(before, after)["step_time"].lines[0] == (
        "XLA no longer compiles BiasAdd ×2, MatMul ×2, Relu"
    )
    assert "try: jit_compile=True" in compared(before, after)["step_time"].lines


def test_an_entry_says_what_xla_compiles_and_is_silent_where_that_is_nothing(place):
    for measured, wanted in (
        (
            step(1, DENSE, {"Cast": 1}),
            [{LAPTOP["platform"]: DENSE}, {LAPTOP["platform"]: {"Cast": 1}}],
        ),
        (step(0, {}, DENSE), [None, None]),
        (untold(1), [None, None]),
    ):
        record({place: [run_of(record_of(measured))]}, False)
        entry = read_structure(place.structure)["test_step"]
        assert [entry.get(name) for name in ("in_xla", "outside_xla")] == wanted


def test_fewer_executables_without_evidence_are_unknown_and_fail():
    cases = [
        (untold(1, 1.0), step(0, {}, DENSE), UNTOLD),  # an entry of an earlier version
        (untold(2), step(1, {}, DENSE), UNTOLD),
        (step(1, DENSE, {}), untold(0), "the step's functions hold 9,000 nodes"),
        (untold(1), untold(0), "the step's functions hold 9,000 nodes"),
    ]
    for before, after, why in cases:
        found = compared(before, after)["xla_clusters"]
        assert (found.verdict, found.sentence.rpartition("unknown: ")[2]) == ("UNKNOWN", why)


def test_without_evidence_nothing_is_unknown_where_no_op_can_have_left_xla():
    cases = [
        (untold(2, 1.0), step(1, DENSE, {})),  # nothing runs outside
        (untold(2, 0.5), step(1, DENSE, {"Cast": 1})),  # XLA's share did not fall
        (untold(1), untold(1)),
        (untold(1), untold(2)),
    ]
    for before, after in cases:
        assert compared(before, after)["xla_clusters"].verdict == "PASS"


def test_the_advice_for_an_earlier_entry_never_records_the_loss(place):
    record({place: [run_of(record_of(untold(1, 1.0)))]}, False)
    after = step(0, {}, DENSE)
    found = by_metric(
        compare_with_baseline(after, "test_step", Baseline(place), LAPTOP, "structural", None)
    )
    assert found["xla_clusters"].advice == (
        ("try", "pytest --tfperf-update on the version before, or --tfperf-against it"),
    )
