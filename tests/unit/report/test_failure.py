"""The message of a failed test: the most telling check first, and nothing twice."""

from helpers.builders import check

from pytest_tfperf.report.failure import failure_headline, failure_message
from pytest_tfperf.results import most_telling_first

SLOWER = check(
    "REGRESSION",
    "step_time",
    "step_time is 17.5 times slower than the baseline: 679 µs to 11.9 ms, limit 5 %",
    kind="baseline",
    details=(("", "+5.2 ms: 3 new MatMul"),),
    advice=(("if intended", "pytest --tfperf-update"),),
    detail={"before": 679e-6, "after": 11.9e-3, "ratio": 17.5},
)


def changed(metric, before, after):
    return check(
        "REGRESSION",
        metric,
        f"{metric} rose from {before} to {after}",
        kind="baseline",
        advice=(("if intended", "pytest --tfperf-update"),),
        detail={"before": before, "after": after},
    )


FLOPS, OPS, COMPILES = (
    changed("flops", 10, 1000),
    changed("graph_ops", 21, 46),
    changed("xla_compiles", 0, 1),
)
LIMIT = check(
    "FAIL", sentence="input_bound is 61 %, above the limit of 5 %", advice=(("try", "prefetch"),)
)
MISSING = check("MISSING", "baseline", "no baseline for 'test_good'", kind="baseline")


def test_limits_come_first_then_the_step_time_then_the_largest_change():
    checks = [MISSING, OPS, FLOPS, COMPILES, SLOWER, LIMIT]
    assert most_telling_first(checks) == [LIMIT, SLOWER, COMPILES, FLOPS, OPS, MISSING]


def test_the_test_itself_is_slower_and_its_advice_is_given_once():
    assert failure_message("test_good", [OPS, FLOPS, SLOWER]).splitlines() == [
        "test_good is 17.5 times slower than the baseline: 679 µs to 11.9 ms, limit 5 %",
        "  +5.2 ms: 3 new MatMul",
        "  if intended: pytest --tfperf-update",
        "flops rose from 10 to 1000",
        "graph_ops rose from 21 to 46",
    ]


def test_profiles_are_named():
    train = check("FAIL", name="train", sentence="retraces is 3, above the limit of 0")
    other = check("FAIL", "eager_ops", "eager_ops is 1, above the limit of 0", name="eval")
    assert failure_message("test_fit", [train, other]).splitlines() == [
        "test_fit/train: retraces is 3, above the limit of 0",
        "eval: eager_ops is 1, above the limit of 0",
    ]


def test_a_number_of_a_profile_is_told_with_its_test():
    checks = [check("FAIL", name=name, sentence=f"retraces is {name}") for name in ("2", "3")]
    lines = failure_message("test_fit", checks).splitlines()
    assert lines == ["test_fit/2: retraces is 2", "test_fit/3: retraces is 3"]


def test_a_limit_on_the_step_time_is_about_the_metric():
    limit = check("FAIL", "step_time", "step_time is 20 ms, above the limit of 10 ms")
    assert failure_headline("test_fit", limit) == f"test_fit: {limit.sentence}"


def test_a_time_that_is_not_decided_says_so_first():
    """With --tfperf-strict it fails a test."""
    sentence = "step_time is 3.1 times slower than the baseline: 12 ms to 37 ms, limit 5 %; noise"
    undecided = check("INCONCLUSIVE", "step_time", sentence, kind="baseline")
    assert failure_headline("test_fit", undecided) == f"test_fit is not decided: {sentence}"
    assert f"not decided: {sentence}" in failure_message("test_fit", [LIMIT, undecided])


def test_a_change_of_sign_is_the_largest_change():
    """Custom metrics may be negative, and so may numbers of a damaged file."""
    sign = changed("my_metric", -3.0, 3.0)
    assert most_telling_first([FLOPS, sign, OPS]) == [sign, FLOPS, OPS]
