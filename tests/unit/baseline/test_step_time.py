"""What is said of a step time: what was wanted, what was found, why it is not decided, what to do next."""

import pytest
from helpers.builders import profile, value

from pytest_tfperf.baseline.step_time import StoredRuns, judge, why_not_timed
from pytest_tfperf.stats.prediction_interval import History

MS = 1e-3
WILD = tuple(seconds * MS for seconds in (9.5, 10, 10, 10.5, 10, 9.5, 10.5, 10, 10, 10))


def said(now, runs, anchor=None, tolerance=0.05, why_not=None, changed="", **words):
    words = {
        "runs": f"the last {len(runs)} runs",
        "anchor": "the first 5 runs, from commit abc on",
        "accept": "pytest --tfperf-update",
    } | words
    past = StoredRuns(history=History(runs=tuple(runs), anchor=anchor, n_anchor=5), **words)
    found = judge(value("step_time", now), past, tolerance, why_not, changed)
    return found.verdict.value, [found.sentence, *lines_of(found)]


def lines_of(found):
    """What stands below the sentence."""
    return [f"  {label}: {text}" for label, text in (*found.details, *found.advice)]


QUIET = (10 * MS,) * 10


def test_a_pass_says_how_far_it_is_and_what_was_wanted():
    assert said(10 * MS, QUIET) == (
        "PASS",
        [
            "step_time is 10 ms, 1.000 times the 10 ms of the last 10 runs (0.981 to 1.020, 99.5 % interval), wanted at most 5 % slower"
        ],
    )


def test_an_improvement_says_how_to_hold_it():
    verdict, (found, tried) = said(9 * MS, QUIET)
    assert (verdict, tried) == ("IMPROVED", "  try: pytest --tfperf-update, to hold it from now on")
    assert found.endswith("wanted at most 5 % slower: it is faster")


def test_a_reference_without_a_way_to_accept_gives_no_advice():
    assert len(said(9 * MS, QUIET, accept="")[1]) == 1
    assert len(said(12 * MS, QUIET, accept="")[1]) == 1


def test_an_inconclusive_check_states_the_minimum_detectable_change():
    verdict, (found, tried) = said(10.2 * MS, WILD)
    assert verdict == "INCONCLUSIVE"
    assert found.endswith(
        "runs differ by 3.34 % from one another; a slow-down of 27.3 % would have been found in 9 of 10 cases"
    )
    assert (
        tried
        == "  try: pytest --tfperf-against REF, which compares in turns; or a larger max_regression"
    )


def test_a_tolerance_below_20_us_is_raised_and_said():
    assert (
        "wanted at most 20 % slower (raised from 5 %: less than 20 µs a step is never slower)"
        in said(100e-6, (100e-6,) * 10)[1][0]
    )


def test_drift_names_the_first_runs_and_says_that_the_latest_alone_would_pass():
    verdict, (found, *_) = said(11 * MS, (11 * MS,) * 10, anchor=10 * MS)
    assert verdict == "REGRESSION"
    assert found == (
        "step_time is 11 ms, 1.100 times the 10 ms of the first 5 runs, from commit abc on (1.077 to 1.123, 99.5 % interval), wanted at "
        "most 5 % slower; slow drift: to the last 10 runs alone it is 1.000 (0.981 to 1.020), which would pass"
    )


def test_drift_that_the_latest_runs_leave_open_says_so():
    found = said(11 * MS, (10.6 * MS,) * 10, anchor=10 * MS)[1][0]
    assert found.endswith(
        "to the last 10 runs alone it is 1.038 (1.018 to 1.058), which would not decide it"
    )


def test_an_inconclusive_anchor_is_named():
    verdict, (found, _) = said(10.5 * MS, (10.5 * MS,) * 10, anchor=10 * MS)
    assert verdict == "INCONCLUSIVE"
    assert (
        "the last 10 runs alone would pass, but it is 1.050 times the first 5 runs, from commit abc on (1.028 to 1.072);"
        in found
    )


@pytest.mark.parametrize(
    ("runs", "which"),
    [(WILD[:3], "that"), ((7 * MS, 8 * MS, 10 * MS, 12 * MS, 13 * MS), "any of them")],
)
def test_a_doubled_time_is_described(runs, which):
    verdict, (found, *_) = said(30 * MS, runs)
    assert verdict == "REGRESSION"
    assert found.endswith(
        f"wanted at most 5 % slower: beyond 2.000 times {which} it is a regression, however few the runs"
    )


def test_a_regression_says_since_when_where_and_what_changed():
    past = StoredRuns(
        history=History(runs=QUIET),
        runs="the last 10 runs",
        newest="def",
        accept="pytest --tfperf-update",
    )
    now = value("step_time", 12 * MS, where="Map", **{"try": "prefetch"})
    assert lines_of(judge(now, past, 0.05, None, "keras 3.14 → 3.15")) == [
        "  newest recorded: commit def",
        "  where: Map",
        "  changed besides: keras 3.14 → 3.15",
        "  try: prefetch",
        "  try: pytest --tfperf-update, if the slow-down is meant",
    ]


@pytest.mark.parametrize("now", [10 * MS, 100 * MS])
def test_an_invalid_sample_is_not_decided(now):
    verdict, (found,) = said(now, QUIET, why_not="other workers may have used the CPU")
    assert verdict == "INCONCLUSIVE"
    assert found.endswith("interval): other workers may have used the CPU")


def test_collecting_says_how_to_go_on():
    assert said(10 * MS, QUIET[:2], few="collecting 2 of 5 runs", collect="more runs")[1] == [
        "step_time is 10 ms, 1.000 times the 10 ms of the last 2 runs; collecting 2 of 5 runs",
        "  try: more runs",
    ]


@pytest.mark.parametrize(
    ("detail", "shared_cpu", "why"),
    [
        ({"settled": True, "instrumented": False}, False, None),
        ({"settled": True}, False, None),
        ({"settled": False}, False, "the input buffers were still draining"),
        (
            {"settled": True},
            True,
            "other workers may have used the CPU; run with -n 0, or --tfperf-only structural",
        ),
        (
            {"settled": False},
            True,
            "other workers may have used the CPU; run with -n 0, or --tfperf-only structural",
        ),
        (
            {"settled": True, "instrumented": True},
            False,
            "Python was traced meanwhile, by coverage or a debugger; run without (--no-cov)",
        ),
    ],
)
def test_reasons_for_an_invalid_sample(detail, shared_cpu, why):
    assert why_not_timed(profile(step_time=value("step_time", 1.0, **detail)), shared_cpu) == why
