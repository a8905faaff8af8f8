"""A run of pytest whose exit status `git bisect run` understands, whatever becomes of pytest."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.gates import NEVER, gate_of_value
from pytest_tfperf.metric_registry import PLATFORM
from pytest_tfperf.report.run_file import read_run
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.text import and_more, for_terminal

GOOD, BAD = 0, 1
UNTESTABLE = 125
"""
The status of a commit that cannot be tested.

Source: git-bisect(1), "bisect run": above 127, it stops.
"""
_BAD = frozenset({Verdict.FAIL, Verdict.REGRESSION})
_GOOD = frozenset({Verdict.PASS, Verdict.IMPROVED})
_OK, _TESTS_FAILED = 0, 1  # pytest.ExitCode
_NAMED = 3


def run_for_bisect(arguments: Sequence[str]) -> int:
    """Run pytest in a process, say what its results mean for git bisect, and return the status."""
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))  # pytest has it too
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which ends pytest
    with TemporaryDirectory(prefix="tfperf-bisect-") as folder:
        path = Path(folder, "run.json")
        command = [sys.executable, "-m", "pytest", *arguments, f"--tfperf-report={path}"]
        ended = subprocess.run(command).returncode
        if interrupts:
            return 128 + interrupts[0]
        if ended < 0 or not path.exists():
            how = f"exit status {ended}" if ended >= 0 else signal.Signals(-ended).name
            status, why = UNTESTABLE, f"pytest ended with {how}"
        else:
            try:
                status, why = bisect_status(read_run(path).tests, ended)
            except TfperfError as error:
                status, why = UNTESTABLE, str(error)
    sys.stdout.write(for_terminal(f"tfperf: status {status} for git bisect: {why}\n"))
    return status


def bisect_status(tests: Sequence[ProfiledTest], exit_status: int) -> tuple[int, str]:
    """Return the status for `git bisect run`, and the reason, by tests and pytest's own status."""
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
