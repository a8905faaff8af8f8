"""Child processes that run a test of this process again, up to a call in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.command import same_run, start_pytest
from pytest_tfperf.child.node_names import node_key
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.reports import last_lines, report_from
from pytest_tfperf.errors import CaptureError

__tracebackhide__ = True


class SameTest:
    """
    A test, and processes that run it again.

    Args:
        item: The test.
        call: The call that they run it up to, for messages: `compare`.
    """

    def __init__(self, item: pytest.Item, call: str) -> None:
        self._item, self._call = item, call
        self._root = item.config.rootpath
        self.key = node_key(item, self._root)
        """Node key of the test."""

    def start(
        self, who: str, cleanup: Cleanup, environment: Mapping[str, str], **changes: Any
    ) -> ChildProcess:
        """
        Start a process that collects the test's file; it collects while others start.

        Args:
            who: Name of what it runs for, in messages: `variant 'a'`.
            cleanup: Ends it if this process cannot.
            environment: Environment variables besides those of this process.
            changes: Fields of the run that differ from this one.

        Raises:
            PairedError: If it cannot be started.
        """
        file = self.key.partition("::")[0]
        run = same_run(self._item.config, f"the process of {who}", self._root, [file])
        environment = {**run.environment, **environment}
        return start_pytest(replace(run, environment=environment, **changes), cleanup)

    def await_collected(self, child: ChildProcess) -> None:
        """
        Wait until a process has collected the test.

        Raises:
            CaptureError: If it has no such test.
            PairedError: If it ended, or was not ready in time.
        """
        child.await_collected()
        if self.key not in child.collected:
            why = (
                child.errors_of(self.key) or "  collected a second time, the tests have other names"
            )
            raise CaptureError(f"{child.label} has no test of this name:\n{why}")

    def failed(self, child: ChildProcess, who: str, event: Mapping[str, Any]) -> CaptureError:
        """
        Return why a process has come to the end of the test before its profile was made.

        Args:
            child: The process.
            who: Name of what it runs for.
            event: Its last event.
        """
        if "stopped" in event:
            return CaptureError(f"{who} stopped the run in its process: {event['stopped']}")
        for report in [report_from(self._item, data) for data in child.reports]:
            if report.failed:
                # each on its own: TensorFlow prints more lines than are shown
                printed = (f"{title}:\n{text}" for title, text in report.sections if text.strip())
                parts = map(last_lines, (report.longreprtext, *printed))
                return CaptureError("\n".join([f"{who} fails in its process:", *parts]))
            if report.skipped:
                return CaptureError(f"{who} is skipped in its process: {report.longreprtext}")
        return CaptureError(
            f"the process of {who} came to the end of the test without this call of {self._call}: "
            "run again, a test must take the same way"
        )
