"""A step time that looks slower, held against a second process."""

import pytest
from helpers.builders import check

from pytest_tfperf.plugin.decide import confirmed, is_suspected
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import Unknown

SLOWER = check(
    "REGRESSION",
    "step_time",
    "step_time is 41 ms, 1.5 times the 27 ms of the last 10 runs, wanted at most 5 % slower",
    details=(("where", "there"),),
    advice=(("try", "--tfperf-update"),),
    kind="baseline",
    detail={"before": 0.027, "after": 0.041},
)


def second(verdict, after=0.0405):
    return check(
        verdict,
        "step_time",
        "step_time is 40.5 ms",
        kind="baseline",
        detail={"after": after} if after else {},
    )


def test_suspected_are_step_times_slower_than_those_recorded():
    cases = [
        ("REGRESSION", "step_time", "baseline", True),
        ("REGRESSION", "retraces", "baseline", False),
        ("REGRESSION", "step_time", "against", False),
        ("INCONCLUSIVE", "step_time", "baseline", False),
        ("FAIL", "step_time", "limit", False),
        ("REGRESSION", "step_cpu_time", "baseline", True),
        ("FAIL", "step_cpu_time", "limit", False),
    ]
    for verdict, metric, kind, suspected in cases:
        assert is_suspected(check(verdict, metric, kind=kind)) is suspected, (verdict, metric, kind)


def test_a_second_process_that_is_slower_too_confirms_it():
    found = confirmed(SLOWER, second("REGRESSION"), 0.0405)
    assert found.verdict is Verdict.REGRESSION
    assert found.message.splitlines()[1:] == [
        "  where: there",
        "  confirmed in a second process: 40.5 ms",
        "  try: --tfperf-update",
    ]
    assert found.detail == {"before": 0.027, "after": 0.041, "second": 0.0405}


def test_a_second_process_that_is_not_slower_makes_it_inconclusive():
    cases = [
        ("PASS", "is no regression"),
        ("IMPROVED", "is no regression"),
        ("INCONCLUSIVE", "does not decide it"),
    ]
    for verdict, which in cases:
        found = confirmed(SLOWER, second(verdict, 0.0271), 0.0271)
        assert found.verdict is Verdict.INCONCLUSIVE, verdict
        first, why, helps = found.message.splitlines()
        assert first == f"{SLOWER.sentence}; but 27.1 ms in a second process, which {which}", (
            verdict
        )
        assert why == "  processes of the same code differ as much here", verdict
        assert helps.startswith("  try: pytest --tfperf-against REF"), verdict
        assert found.detail["second"] == 0.0271, verdict


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Unknown("it ended with SIGKILL"), "it ended with SIGKILL"),
        (second("UNKNOWN", None), "step_time is 40.5 ms"),
    ],
)
def test_a_regression_without_a_second_time_stands(other, why):
    found = confirmed(SLOWER, other, None)
    assert found.verdict is Verdict.REGRESSION
    assert f"\n  could not be confirmed in a second process: {why}\n  try: " in found.message
    assert found.detail == SLOWER.detail
