"""Run a test in a process of its own, where TensorFlow starts with that test's flags."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.turns.children import Spec, children, test_key
from pytest_tfperf.turns.messages import Stopped
from pytest_tfperf.turns.pytest_child import (
    ChildProcess,
    ProcessLost,
    RunStopped,
    is_child,
    shows_output,
    uncovered_environment,
)
from pytest_tfperf.turns.reports import (
    failed_report,
    has_ended,
    log_reports,
    next_phase,
    received,
)


def can_isolate(config: pytest.Config) -> bool:
    """Return whether tests of this run can go to a process of their own."""
    return not (
        is_child(config)
        or getattr(config.option, "setuponly", False)
        or config.option.tfperf_disable
    )


def differing_flags_of(config: pytest.Config) -> tuple[str, ...]:
    """Return `differing_flags` here. Raises: CaptureError if a test needs its own process."""
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
    except (PairedError, OSError, pytest.fail.Exception) as error:
        message = str(error)
    reports = [] if child is None else received(item, child)
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
        },
        task={"is_coordinated": False},
    )


# without the second nothing clusters on a CPU (TensorFlow, tensorflow/compiler/jit/flags.cc)
_AUTOCLUSTERING = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")
_VARIABLE = "TF_XLA_FLAGS"


def autoclustering_environment(environment: dict[str, str]) -> dict[str, str]:
    """
    Return an environment whose flags cluster all that can be. Raises: as `autoclustering_flags`.
    """
    return {**environment, _VARIABLE: autoclustering_flags(environment.get(_VARIABLE, ""))}


def autoclustering_flags(flags: str) -> str:
    """
    Return flags that cluster all that can be; a flag that is set keeps its value. Raises: OSError.

    TensorFlow takes a value without a leading dash for the name of a file that holds flags
    (openxla/xla, parse_flags_from_env.cc).
    """
    flags = flags.strip()
    if flags and not flags.startswith("-"):
        flags = Path(flags).read_text("utf-8").strip()
    names = {_name(flag) for flag in _split(flags)}
    added = [flag for flag in _AUTOCLUSTERING if _name(flag) not in names]
    return " ".join([*added, *([flags] if flags else [])])


def differing_flags() -> tuple[str, ...]:
    """Return notes on flags with other values than ours. Raises: CaptureError if one is gone."""
    flags = {
        _name(flag): flag.removesuffix("=true") for flag in _split(os.environ.get(_VARIABLE, ""))
    }
    dropped = [flag for flag in _AUTOCLUSTERING if _name(flag) not in flags]
    if dropped:
        raise CaptureError(
            f"autocluster=True had set {' '.join(dropped)} in {_VARIABLE}, and it was overwritten: "
            "a conftest must add to it"
        )
    return tuple(
        f"{_VARIABLE} had {flags[_name(own)]}, which autocluster=True left ({own} is its own)"
        for own in _AUTOCLUSTERING
        if flags[_name(own)] != own
    )


def _split(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:
        return flags.split()


def _name(flag: str) -> str:
    return flag.partition("=")[0]
