"""Run a test in a process of its own, where TensorFlow starts with that test's flags."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.command import (
    is_child,
    same_run,
    shows_output,
    start_pytest,
    uncovered_environment,
)
from pytest_tfperf.child.node_names import node_key
from pytest_tfperf.child.process import ChildProcess, ProcessLost, RunStopped
from pytest_tfperf.child.reports import (
    failed_report,
    has_ended,
    log_reports,
    next_phase,
    record_warning,
    report_from,
)
from pytest_tfperf.child.xla_flags import autoclustering_environment, differing_flags
from pytest_tfperf.errors import CaptureError, PairedError

_NOT_COLLECTED = "the process of its own that autocluster=True gives a test did not collect it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """The end of a test's process."""

    stopped: str | None = None
    """Why the test stopped the run, if it did."""
    how: str = ""
    """Exit status, signal or error."""
    output: str = ""
    """The last lines that it printed."""
    message: str = ""
    """A complete message, where there is one."""


def can_isolate(config: pytest.Config) -> bool:
    """Return whether tests of this run can go to a process of their own."""
    return not (
        is_child(config)
        or getattr(config.option, "setuponly", False)
        or config.option.tfperf_disable
    )


def differing_flags_of(config: pytest.Config) -> tuple[str, ...]:
    """
    Return notes on the autoclustering flags of this process that have other values than ours.

    Raises:
        CaptureError: If this process does not have the flags at all.
    """
    if is_child(config):
        return differing_flags()
    if not can_isolate(config):
        return ()
    raise CaptureError(
        "autocluster=True needs a process of its own: "
        "name tf_profile among the test's arguments, or mark the test itself"
    )


def run_test(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run one test in a process of its own, and log its reports here."""
    log_reports(item, nextitem, _reports(item))


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """Yield the reports of a test from its process, and a failure if that ended too soon."""
    child: ChildProcess | None = None
    try:
        with closing(Cleanup()) as cleanup:
            child = _start(item, cleanup)
            ended = _run(item, child)
    except (OSError, PairedError) as error:
        ended = _Ended(how=str(error))
    reports: list[pytest.TestReport] = []
    if child is not None:
        for warning in child.warnings:
            record_warning(item, warning)
        reports = [report_from(item, report) for report in child.reports]
    yield from reports
    if ended.stopped is not None:
        pytest.exit(ended.stopped)
    if not has_ended(reports):
        died = (
            f"{ended.how} in the {next_phase(reports)} of a test in a process of its own "
            f"(autocluster=True){ended.output}"
        )
        yield failed_report(item, ended.message or died, reports)


def _start(item: pytest.Item, cleanup: Cleanup) -> ChildProcess:
    """
    Start the process of a test.

    Raises:
        OSError: If TF_XLA_FLAGS names a file that cannot be read.
        PairedError: If the process cannot be started.
    """
    run = same_run(item.config, "the test's process", item.path.parent, [item.path.name])
    run = replace(
        run,
        environment=autoclustering_environment(uncovered_environment()),
        shows_output=shows_output(item.config),
        pauses=False,
        patience_s=math.inf,
        is_coordinated=False,
    )
    return start_pytest(run, cleanup)


def _run(item: pytest.Item, child: ChildProcess) -> _Ended:
    """Run the test to the end of its process."""
    key = node_key(item, item.path.parent)
    try:
        child.await_collected()
        if key not in child.collected:
            child.close()
            return _Ended(message=f"{_NOT_COLLECTED}\n{child.errors_of(key)}".rstrip())
        child.run(key, None)
        event = child.next_event()
        child.close(math.inf)
        return _Ended(stopped=event.get("stopped"), how=child.status)
    except ProcessLost as error:
        return _Ended(how=error.status, output=error.output)
    except RunStopped as error:
        return _Ended(stopped=error.why)
    except pytest.fail.Exception as error:  # plugins for time limits raise it
        output = child.output()
        child.interrupt()
        return _Ended(how=str(error), output=output)
    except BaseException:
        child.interrupt()
        raise
