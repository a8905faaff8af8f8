"""One run file against another."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, SERVER, profile, record_of, run_of, value

from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.values import Value


def compared(before, after):
    return [
        (test.key, one.profile, one.metric, one.verdict.value, one.message)
        for test in compare_runs(before, after).tests
        for one in test.checks
    ]


def one_test(before, now, **tests):
    return [
        found[2:]
        for found in compared(run_of(record_of(before, **tests)), run_of(record_of(now, **tests)))
    ]


def test_a_profile_of_which_nothing_got_worse_is_improved():
    found = one_test(profile(retraces=0, eager_ops=2), profile(retraces=0, eager_ops=1))
    assert ("eager_ops", "IMPROVED", "eager_ops fell from 2 to 1") in found


def test_structure_has_the_verdicts_of_a_baseline():
    found = one_test(
        profile(retraces=0, xla_clusters=1, eager_ops=2),
        profile(retraces=1, xla_clusters=1, eager_ops=1, fusions=3),
    )
    assert found == [
        ("retraces", "REGRESSION", "retraces rose from 0 to 1"),
        (
            "eager_ops",
            "PASS",
            "eager_ops fell from 2 to 1: changed, and not improved, since retraces got worse",
        ),
        ("xla_clusters", "PASS", "xla_clusters is 1, as in the first file"),
        ("fusions", "NEW", "fusions is 3, and the first file has none"),
    ]


def test_another_platform_compares_only_program_metrics():
    before, after = (
        run_of(record_of(profile(retraces=0, xla_clusters=n), environment=where))
        for n, where in ((1, LAPTOP), (2, SERVER))
    )
    assert [found[2:4] for found in compared(before, after)] == [
        ("retraces", "PASS"),
        ("platform", "INCOMPARABLE"),
    ]


def test_one_run_each_decides_only_a_doubling():
    cases = [
        (
            0.012,
            "INCONCLUSIVE",
            "step_time is 20 % slower than the first file: 10 ms to 12 ms; one run against one decides nothing but a doubled time",
        ),
        (
            0.005,
            "INCONCLUSIVE",
            "step_time is 2 times faster than the first file: 10 ms to 5 ms; one run against one decides nothing but a doubled time",
        ),
        (
            0.021,
            "REGRESSION",
            "step_time is 2.1 times slower than the first file: 10 ms to 21 ms, limit 5 %",
        ),
    ]
    for now, verdict, said in cases:
        [(metric, found, message)] = one_test(profile(step_time=0.010), profile(step_time=now))
        assert (metric, found) == ("step_time", verdict), now
        assert message.startswith(said), now


def test_the_tolerance_is_that_of_the_second_run():
    before, after = (
        run_of(replace(record_of(profile(step_time=time)), max_regression=2.0))
        for time in (0.01, 0.025)
    )
    assert compared(before, after)[0][3] == "INCONCLUSIVE"


def test_times_of_two_machine_classes_are_not_compared():
    before, after = (
        run_of(record_of(profile(step_time=0.01), environment=where)) for where in (LAPTOP, SERVER)
    )
    timing = compared(before, after)[-1]
    assert timing[2:4] == ("step_time", "INCOMPARABLE")
    assert (
        "the first file is of another machine class (accelerators: stored none, here H100 (matters: the step runs on them)"
        in timing[4]
    )


UNKNOWN = Value.unknown("step_time", "the loop was too short")


@pytest.mark.parametrize(
    ("before", "now", "verdict", "message"),
    [
        (
            0.01,
            UNKNOWN,
            "UNKNOWN",
            "step_time is unknown, 10 ms in the first file: the loop was too short",
        ),
        (
            UNKNOWN,
            0.01,
            "NEW",
            "step_time is 10 ms, and unknown in the first file: the loop was too short",
        ),
    ],
)
def test_a_time_that_one_run_lacks_is_named_with_the_reason(before, now, verdict, message):
    assert one_test(profile(step_time=before), profile(step_time=now)) == [
        ("step_time", verdict, message)
    ]


def test_a_time_that_no_run_has_is_no_check():
    assert one_test(profile(step_time=UNKNOWN), profile(step_time=UNKNOWN)) == []


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (True, "in the first file other workers may have used the CPU"),
        (False, "other workers may have used the CPU"),
    ],
)
def test_times_beside_other_workers_are_not_decided(first, said):
    tests = [
        replace(record_of(profile(step_time=time)), shared_cpu=shared)
        for time, shared in ((0.01, first), (0.1, not first))
    ]
    [found] = compared(run_of(tests[0]), run_of(tests[1]))
    assert found[3] == "INCONCLUSIVE"
    assert f" to 100 ms: {said}" in found[4]


def test_times_that_had_not_settled_are_not_decided():
    [(_, verdict, message)] = one_test(
        profile(step_time=value("step_time", 0.01, settled=False)), profile(step_time=0.1)
    )
    assert (verdict, message.rpartition(": ")[2]) == (
        "INCONCLUSIVE",
        "in the first file the input buffers were still draining",
    )


def test_profiles_are_matched_by_file_key_and_name():
    before = run_of(
        record_of(profile(retraces=0), profile("eval", retraces=0)),
        record_of(profile(retraces=0), key="test_gone"),
        record_of(profile(retraces=0), file="test_other.py"),
    )
    after = run_of(
        record_of(profile(retraces=0), profile("new", retraces=0)),
        record_of(profile(retraces=1), file="test_other.py"),
    )
    assert [found[:4] for found in compared(before, after)] == [
        ("test_step", "", "retraces", "PASS"),
        ("test_step", "new", "profile", "NEW"),
        ("test_step", "eval", "profile", "MISSING"),
        ("test_step", "", "retraces", "REGRESSION"),
        ("test_gone", "", "profile", "MISSING"),
    ]
    assert {found[4] for found in compared(before, after) if found[2] == "profile"} == {
        "'test_step/new' is only in the second file",
        "'test_step/eval' is only in the first file",
        "'test_gone' is only in the first file",
    }


def test_a_test_that_failed_before_its_profile_is_named():
    [found] = compared(run_of(record_of(profile(retraces=0))), run_of(record_of(outcome="failed")))
    assert found[3:] == (
        "MISSING",
        "'test_step' is only in the first file; in the other one the test failed",
    )


def test_another_workload_is_not_compared():
    found = one_test(
        profile(retraces=0, workload={"batch": 8}), profile(retraces=9, workload={"batch": 16})
    )
    assert found == [
        (
            "profile",
            "MISSING",
            "the first file has it for another workload (batch: stored 8, now 16)",
        )
    ]


def test_the_checks_are_those_of_a_comparison():
    found = compare_runs(
        run_of(record_of(profile(retraces=0, step_time=0.1))),
        run_of(record_of(profile(retraces=0, step_time=0.1))),
    )
    assert {one.kind for test in found.tests for one in test.checks} == {"compare"}


def test_a_run_that_does_not_say_where_it_ran_is_refused():
    with pytest.raises(BaselineError, match="does not say on which platform"):
        compared(run_of(record_of(profile(retraces=0), environment={})), run_of())


def test_empty_runs_are_alike():
    assert compared(run_of(), run_of()) == []
