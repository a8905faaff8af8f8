"""The exit status of a run for `git bisect run`."""

from dataclasses import replace

from helpers.builders import LAPTOP, profile, record_of

from pytest_tfperf.report.bisect_status import bisect_status
from pytest_tfperf.results import Check, Verdict

OK, TESTS_FAILED = 0, 1
GOOD, BAD, UNTESTABLE = 0, 1, 125


def check(verdict, metric="step_time", kind="against"):
    return Check(
        profile="", metric=metric, kind=kind, verdict=Verdict(verdict), wanted="", sentence="x"
    )


def status_of(*tests, pytest_status=OK):
    return bisect_status(tests, pytest_status)


def a_test(*checks, outcome="passed", **fields):
    measured = profile(step_time=1.0, fusions=1, graph_ops=1, retraces=0)
    return record_of(measured, checks=checks, outcome=outcome, **fields)


def test_every_verdict_has_a_status():
    for verdict in Verdict:
        for beside in ["PASS", None]:
            broken = verdict in (Verdict.FAIL, Verdict.REGRESSION, Verdict.UNKNOWN, Verdict.MISSING)
            test = a_test(
                check(verdict),
                *([check(beside)] if beside else []),
                outcome="failed" if broken else "passed",
            )
            wanted = {"PASS": GOOD, "IMPROVED": GOOD, "FAIL": BAD, "REGRESSION": BAD}
            found, why = status_of(test, pytest_status=TESTS_FAILED if broken else OK)
            assert found == wanted.get(verdict.value, UNTESTABLE), (verdict, beside)
            assert (f"step_time {verdict.value} in test_step" in why) == (found != GOOD), (
                verdict,
                beside,
            )


def test_a_run_that_did_not_end_is_not_tested():
    for pytest_status in [2, 3, 4, 5, 6, 137]:
        regressed = a_test(check("REGRESSION"), outcome="failed")
        found, why = status_of(regressed, pytest_status=pytest_status)
        assert (found, why) == (
            UNTESTABLE,
            f"the run did not come to its end (pytest's status {pytest_status})",
        ), pytest_status


def test_without_a_check_nothing_was_tested():
    why = "no profiled test ran that checks anything"
    assert status_of() == status_of(a_test()) == (UNTESTABLE, why)


def test_a_test_that_fails_for_another_reason_is_not_tested():
    found, why = status_of(a_test(check("PASS")), pytest_status=TESTS_FAILED)
    assert (found, why) == (UNTESTABLE, "a test failed for another reason than its performance")


def test_a_regression_counts_beside_what_could_not_be_tested():
    tests = a_test(check("REGRESSION"), outcome="failed"), a_test(check("INCONCLUSIVE"), key="b")
    assert status_of(*tests, pytest_status=TESTS_FAILED) == (
        BAD,
        "bad, step_time REGRESSION in test_step",
    )


def test_a_regression_that_the_test_expects_is_not_bad():
    found, _ = status_of(a_test(check("PASS"), check("REGRESSION"), outcome="skipped"))
    assert found == GOOD


def test_what_could_fail_nothing_may_stay_open():
    for metric, kind, status in [
        ("fusions", "against", GOOD),  # no change of it fails a test
        ("graph_ops", "against", UNTESTABLE),
        ("fusions", "limit", UNTESTABLE),
        ("platform", "baseline", UNTESTABLE),  # is no metric
    ]:
        for verdict in ["INCONCLUSIVE", "NEW", "INCOMPARABLE"]:
            found, _ = status_of(a_test(check("PASS"), check(verdict, metric, kind)))
            assert found == status, (metric, kind, verdict)


def test_with_two_pythons_metrics_of_the_platform_may_stay_open():
    environment = {**LAPTOP, "against": {"name": "x", "python": "x", "packages": {}}}
    test = a_test(check("PASS"), check("NEW", "graph_ops"))
    assert status_of(test)[0] == UNTESTABLE
    assert status_of(replace(test, environment=environment))[0] == GOOD
