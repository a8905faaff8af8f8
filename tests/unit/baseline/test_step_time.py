"""What is said of a step time: what was wanted, what was found, why it is not decided, what to do next."""

import pytest
from helpers.builders import profile, value

from pytest_tfperf.baseline.step_time import StoredRuns, judge, why_not_timed
from pytest_tfperf.stats.prediction_interval import History

MS = 1e-3
WILD = tuple(seconds * MS for seconds in (9.5, 10, 10, 10.5, 10, 9.5, 10.5, 10, 10, 10))


def said(now, runs, anchor=None, tolerance=0.05, why_not=None, changed="", **words):
    words = {
        "name": "the baseline",
        "runs": f"the last {len(runs)} runs",
        "anchor": "the first 5 runs, from commit abc on",
        "accept": "pytest --tfperf-update",
    } | words
    past = StoredRuns(history=History(runs=tuple(runs), anchor=anchor, n_anchor=5), **words)
    found = judge(value("step_time", now), past, tolerance, why_not, changed)
    return found.verdict.value, [found.sentence, *lines_of(found)]


def lines_of(found):
    """What stands below the sentence."""
    return [
        f"  {label}: {text}" if label else f"  {text}"
        for label, text in (*found.details, *found.advice)
    ]


QUIET = (10 * MS,) * 10


def test_a_pass_says_how_far_it_is_and_what_was_wanted():
    assert said(10 * MS, QUIET) == (
        "PASS",
        [
            "step_time is 0 % slower than the baseline: 10 ms to 10 ms, limit 5 %",
            "  measured: 1.9 % faster to 2 % slower (99.5 % interval), against the last 10 runs",
        ],
    )


def test_an_improvement_says_how_to_hold_it():
    verdict, (found, _, tried) = said(9 * MS, QUIET)
    assert (verdict, tried) == ("IMPROVED", "  try: pytest --tfperf-update, to hold it from now on")
    assert found == "step_time is 10 % faster than the baseline: 10 ms to 9 ms"


def test_a_reference_without_a_way_to_accept_gives_no_advice():
    for now in (9 * MS, 12 * MS):
        assert not any("try" in line for line in said(now, QUIET, accept="")[1])


def test_an_inconclusive_check_states_the_minimum_detectable_change():
    verdict, (found, _, tried) = said(10.2 * MS, WILD)
    assert verdict == "INCONCLUSIVE"
    assert found.endswith(
        ", limit 5 %; runs differ by 3.34 %, so only a slow-down of 27.3 % would show in 9 of 10 cases"
    )
    assert (
        tried
        == "  try: pytest --tfperf-against REF, which compares in turns; or a larger max_regression"
    )


def test_a_tolerance_below_20_us_is_raised_and_said():
    assert (
        "  limit: raised from 5 %: less than 20 µs a step is never slower"
        in said(100e-6, (100e-6,) * 10)[1]
    )


def test_drift_names_the_first_runs_and_says_that_the_latest_alone_would_pass():
    verdict, found = said(11 * MS, (11 * MS,) * 10, anchor=10 * MS)
    assert verdict == "REGRESSION"
    assert found[:3] == [
        "step_time is 10 % slower than the first 5 runs, from commit abc on: 10 ms to 11 ms, limit 5 %",
        "  measured: 7.7 to 12 % slower (99.5 % interval), against the first 5 runs, from commit abc on",
        "  slow drift: 0 % slower than the last 10 runs alone, which would pass",
    ]


def test_drift_that_the_latest_runs_leave_open_says_so():
    found = said(11 * MS, (10.6 * MS,) * 10, anchor=10 * MS)[1]
    assert found[2] == "  3.8 % slower than the last 10 runs alone, which would not decide it"


def test_an_inconclusive_anchor_is_named():
    verdict, (found, *_) = said(10.5 * MS, (10.5 * MS,) * 10, anchor=10 * MS)
    assert verdict == "INCONCLUSIVE"
    assert (
        "the last 10 runs alone would pass, but it is 5 % slower than the first 5 runs, from commit abc on, so only"
        in found
    )


@pytest.mark.parametrize(
    ("runs", "shown", "which"),
    [
        (WILD[:3], "10 ms", "the last 3 runs"),
        ((7 * MS, 8 * MS, 10 * MS, 12 * MS, 13 * MS), "9.73 ms", "any of them"),
    ],
)
def test_a_doubled_time_is_described(runs, shown, which):
    verdict, found = said(30 * MS, runs)
    assert verdict == "REGRESSION"
    assert found[0].startswith("step_time is 3")
    assert found[0].endswith(" times slower than the baseline: " + shown + " to 30 ms, limit 5 %")
    assert f"  more than 2 times slower than {which} is a regression, however few the runs" in found


@pytest.mark.parametrize("now", [10 * MS, 100 * MS])
def test_an_invalid_sample_is_not_decided(now):
    verdict, (found,) = said(now, QUIET, why_not="other workers may have used the CPU")
    assert verdict == "INCONCLUSIVE"
    assert found.endswith(" ms: other workers may have used the CPU")


def test_reasons_for_an_invalid_sample():
    cases = [
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
    ]
    for detail, shared_cpu, why in cases:
        assert (
            why_not_timed(profile(step_time=value("step_time", 1.0, **detail)), shared_cpu) == why
        ), (detail, shared_cpu)
