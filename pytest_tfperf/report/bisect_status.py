"""A run as an exit status that `git bisect run` understands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tfperf.child.exit_guard import UNTESTABLE
from pytest_tfperf.gates import NEVER, gate_of_value
from pytest_tfperf.metric_registry import PLATFORM
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Json

GOOD, BAD = 0, 1
_BAD = frozenset({Verdict.FAIL, Verdict.REGRESSION})
_GOOD = frozenset({Verdict.PASS, Verdict.IMPROVED})
_OK, _TESTS_FAILED = 0, 1  # pytest.ExitCode
_NAMED = 3


def bisect_status(records: Sequence[Json], exit_status: int) -> tuple[int, str]:
    """
    Return the status for `git bisect run`, and the reason.

    Args:
        records: The profiled tests of the run, as JSON.
        exit_status: pytest's own.
    """
    tests = [ProfiledTest.from_json(record) for record in records]
    if exit_status not in (_OK, _TESTS_FAILED):
        return UNTESTABLE, f"the run did not come to its end (pytest's status {exit_status})"
    failed = (test for test in tests if test.outcome in ("failed", "error"))
    bad = [_named(test, check) for test in failed for check in test.checks if check.verdict in _BAD]
    if bad:
        return BAD, f"bad, {and_more(bad, _NAMED)}"
    undecided = [_named(test, check) for test in tests for check in _open(test)]
    if undecided:
        return UNTESTABLE, and_more(undecided, _NAMED)
    if exit_status != _OK:
        return UNTESTABLE, "a test failed for another reason than its performance"
    n_good = sum(check.verdict in _GOOD for test in tests for check in test.checks)
    if n_good == 0:
        return UNTESTABLE, "no profiled test ran that checks anything"
    return GOOD, "good"


def _open(test: ProfiledTest) -> Iterator[Check]:
    """Yield the checks without a decision, but for those that no change could have failed."""
    for check in test.checks:
        if check.verdict not in _BAD | _GOOD and not _is_shown_only(test, check):
            yield check


def _is_shown_only(test: ProfiledTest, check: Check) -> bool:
    """Return whether a comparison is of a metric whose changes are shown and fail nothing."""
    if check.kind == "limit" or check.verdict in (Verdict.UNKNOWN, Verdict.MISSING):
        return False
    found = next((one for one in test.profiles if one.name == check.profile), None)
    metric = found.registry.get(check.metric) if found is not None else None
    if found is None or metric is None:
        return False
    value = found.metrics.get(check.metric)
    gate = gate_of_value(metric, value.detail if value is not None else {})
    is_other_platform = metric.scope == PLATFORM and "against" in test.environment
    return gate.change == NEVER or not gate.if_unknown or is_other_platform


def _named(test: ProfiledTest, check: Check) -> str:
    return f"{check.metric} {check.verdict.value} in {test.key}"
