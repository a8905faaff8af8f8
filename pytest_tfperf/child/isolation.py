"""Run a test in a process of its own, where TensorFlow starts with that test's flags."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pytest_tfperf.child.children import Spec, children, test_key
from pytest_tfperf.child.command import is_child, shows_output, uncovered_environment
from pytest_tfperf.child.messages import Stopped
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
    stopped, how, message = None, "", ""
    try:
        with children(item, [_spec(item)]) as [child]:
            child.run(test_key(item))
            event = child.next_event()
            child.close(math.inf)
        stopped, how = event.why if isinstance(event, Stopped) else None, child.status
    except ProcessLost as error:
        how, message = error.status, error.output
    except RunStopped as error:
        stopped = error.why
    # plugins for time limits raise the last
    except (PairedError, pytest.fail.Exception) as error:
        message = str(error)
    reports: list[pytest.TestReport] = []
    if child is not None:
        for warning in child.warnings:
            record_warning(item, warning)
        reports = [report_from(item, report) for report in child.reports]
    yield from reports
    if stopped is not None:
        pytest.exit(stopped)
    if not has_ended(reports):
        where = f"in the {next_phase(reports)} of a test in a process of its own (autocluster=True)"
        yield failed_report(item, f"{how} {where}{message}" if how else message, reports)


def _spec(item: pytest.Item) -> Spec:
    """Return what the process of a test starts with."""
    try:
        environment = autoclustering_environment(uncovered_environment())
    except OSError as error:
        raise PairedError(f"TF_XLA_FLAGS names a file that cannot be read: {error}") from error
    return Spec(
        who="a test with autocluster=True",
        changes={
            "environment": environment,
            "shows_output": shows_output(item.config),
            "pauses": False,
            "patience_s": math.inf,
            "is_coordinated": False,
        },
    )
