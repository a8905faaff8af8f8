"""Child processes that run a test of this process again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.messages import FromChild, Stopped
from pytest_tfperf.turns.names import file_of, node_key
from pytest_tfperf.turns.pytest_child import ChildProcess, PytestRun, same_run, start_pytest
from pytest_tfperf.turns.reports import last_lines, report_from

__tracebackhide__ = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A child process to start."""

    who: str
    """Name of what it runs for, in messages: `variant 'a'`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables besides those of this process."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `PytestRun` that differ from this run."""


def test_key(item: pytest.Item) -> str:
    """Return the node key of a test in its children."""
    return node_key(item, item.config.rootpath)


@contextmanager
def children(
    item: pytest.Item, specs: Sequence[Spec], grace_s: float | None = None
) -> Iterator[list[ChildProcess]]:
    """
    Start processes that run a test of this process again; see `running`.

    Raises:
        PairedError: If one of them cannot be started, ended, or has no such test.
    """
    with closing(Cleanup()) as cleanup:
        runs = [_run_of(item, spec) for spec in specs]
        with running(runs, test_key(item), cleanup, grace_s) as started:
            yield started


@contextmanager
def running(
    runs: Sequence[PytestRun], test: str, cleanup: Cleanup, grace_s: float | None = None
) -> Iterator[list[ChildProcess]]:
    """
    Start processes that collect at the same time, and await them.

    They end with the context: in order, or after an error as with Ctrl-C.

    Args:
        runs: What starts.
        test: Node key of a test, which all of them must have collected.
        cleanup: Ends them if this process cannot.
        grace_s: Seconds that they have to end in order after an error; None for the default.

    Raises:
        PairedError: If one of them cannot be started, ended, or has no such test.
    """
    started: list[ChildProcess] = []
    try:
        for run in runs:
            started.append(start_pytest(run, cleanup))
        with naming_awaited(started):
            for child in started:
                child.await_collected(test)
            yield started
    except BaseException:
        for child in started:
            child.interrupt(grace_s)
        raise
    for child in started:
        child.close()


@contextmanager
def naming_awaited(processes: Collection[ChildProcess]) -> Iterator[None]:
    """Add the process that was waited for to the message of a time limit within the context."""
    try:
        yield
    except pytest.fail.Exception as error:  # plugins for time limits raise it
        awaited = [one for one in processes if one.is_awaited and not one.has_ended]
        lines = "".join(f"\n  {one.label} had not answered{one.output()}" for one in awaited)
        raise pytest.fail.Exception(f"{error}{lines}", pytrace=False) from None


def _run_of(item: pytest.Item, spec: Spec) -> PytestRun:
    root = item.config.rootpath
    run = same_run(item.config, f"the process of {spec.who}", root, [file_of(item)])
    environment = {**run.environment, **spec.environment}
    return replace(run, **{"environment": environment, **spec.changes})


def ended_early(
    item: pytest.Item, child: ChildProcess, spec: Spec, event: FromChild, call: str
) -> CaptureError:
    """
    Return why a process has come to the end of a test before its profile was made.

    Args:
        item: The test.
        child: The process.
        spec: What it was started for.
        event: Its last event.
        call: The call that it was to come to: `compare`.
    """
    if isinstance(event, Stopped):
        return CaptureError(f"{spec.who} stopped the run in its process: {event.why}")
    for report in [report_from(item, data) for data in child.reports]:
        if report.failed:
            # each on its own: TensorFlow prints more lines than are shown
            printed = (f"{title}:\n{text}" for title, text in report.sections if text.strip())
            parts = map(last_lines, (report.longreprtext, *printed))
            return CaptureError("\n".join([f"{spec.who} fails in its process:", *parts]))
        if report.skipped:
            return CaptureError(f"{spec.who} is skipped in its process: {report.longreprtext}")
    return CaptureError(
        f"the process of {spec.who} came to the end of the test without this call of {call}: "
        "run again, a test must take the same way"
    )
