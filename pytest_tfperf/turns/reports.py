"""Reports of tests that ran in another process, as if they had run here."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal

import pytest

from pytest_tfperf.turns.messages import Warned
from pytest_tfperf.turns.pytest_child import ChildProcess

_REPORT_LINES = 30


def log_reports(
    item: pytest.Item, nextitem: pytest.Item | None, reports: Iterable[pytest.TestReport]
) -> None:
    """Log the reports, as they come, of a test that ran in another process."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    # fixtures of earlier tests, which the next one does not use, are still set up in this process
    following = None if item.session.shouldfail or item.session.shouldstop else nextitem
    left = _call_info(lambda: item.session._setupstate.teardown_exact(following), "teardown")
    if left.excinfo is not None:
        item.ihook.pytest_runtest_logreport(report=pytest.TestReport.from_item_and_call(item, left))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def failed_report(
    item: pytest.Item, message: str, reports: Iterable[pytest.TestReport]
) -> pytest.TestReport:
    """Return the report of a test whose process ended after the reports that it has sent."""
    phase = next_phase(reports)
    return pytest.TestReport.from_item_and_call(
        item, _call_info(lambda: pytest.fail(message, pytrace=False), phase)
    )


def report_from(item: pytest.Item, data: Any) -> Any:
    """Return the report of a test that another process sent."""
    report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
    report.nodeid = item.nodeid  # that of a worker of xdist has a group in it
    if isinstance(report.longrepr, list):
        report.longrepr = tuple(report.longrepr)  # of a skip: where and why
    return report


def received(item: pytest.Item, child: ChildProcess) -> list[Any]:
    """Show the warnings of a test in another process, and return its reports."""
    for warning in child.warnings:
        _record_warning(item, warning)
    return [report_from(item, report) for report in child.reports]


def _record_warning(item: pytest.Item, data: Warned) -> None:
    """Let pytest show a warning of another process."""
    category = getattr(sys.modules.get(data.module), data.category, UserWarning)
    message = warnings.WarningMessage(data.message, category, data.filename, data.lineno)
    item.config.hook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": item.nodeid,
            "when": "runtest",
            "location": data.location,
        }
    )


def next_phase(reports: Iterable[pytest.TestReport]) -> Literal["setup", "call", "teardown"]:
    """Return the first phase of a test's last run that was not reported."""
    outcomes = _last_run(reports)
    if "setup" not in outcomes:
        return "setup"
    return "teardown" if "call" in outcomes or outcomes["setup"] != "passed" else "call"


def has_ended(reports: Iterable[pytest.TestReport]) -> bool:
    """Return whether a test is complete; it may run again after a failure (rerunfailures)."""
    return "teardown" in _last_run(reports)


def last_lines(text: str) -> str:
    """Return the end of a report, indented, with the number of lines before."""
    lines = text.splitlines()
    more = [f"… {len(lines) - _REPORT_LINES} lines before"] if len(lines) > _REPORT_LINES else []
    return "\n".join(f"  {line}" for line in [*more, *lines[-_REPORT_LINES:]])


def _last_run(reports: Iterable[pytest.TestReport]) -> dict[str | None, str]:
    """Return the outcomes of a test's current run by phase: none where it is to run again."""
    outcomes: dict[str | None, str] = {}
    for report in reports:
        if report.when == "setup":
            outcomes = {}
        outcomes[report.when] = report.outcome
    return {} if "teardown" in outcomes and "rerun" in outcomes.values() else outcomes


def _call_info(
    function: Callable[[], None], phase: Literal["setup", "call", "teardown"]
) -> pytest.CallInfo[None]:
    """Run a function as a phase of a test; pytest makes a report of the result."""
    return pytest.CallInfo.from_call(
        function, phase, reraise=(pytest.exit.Exception, KeyboardInterrupt)
    )
