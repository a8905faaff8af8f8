"""
A test in a process of its own, where TensorFlow starts with that test's flags.

The process runs pytest again with the same arguments and collects this one test; its reports come back as those of xdist's workers do.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.reports import (
    GRACE_S,
    alike_options,
    excerpt,
    failed_report,
    has_ended,
    kill,
    log_reports,
    names_in_file,
    next_phase,
    pytest_command,
    record_warning,
    report_from,
    status_text,
    uncovered_environment,
)
from pytest_tfperf.errors import CaptureError

CHILD = "pytest_tfperf.child.isolated_plugin"
TASK, EVENTS = "task.json", "events.jsonl"

# without the second nothing clusters on a CPU (TensorFlow, tensorflow/compiler/jit/flags.cc)
_AUTOCLUSTERING = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")


def can_leave(config: pytest.Config) -> bool:
    """Whether a test of this run can go to a process of its own: it is in none yet, and the run is to execute tests as they are."""
    return not (
        _has_own_flags(config)
        or getattr(config.option, "setuponly", False)
        or config.option.tfperf_disable
    )


def other_flags(config: pytest.Config) -> tuple[str, ...]:
    """
    What TF_XLA_FLAGS of this process says of autoclustering in other words than ours, as notes.

    Raises:
        CaptureError: If this process does not have the flags at all.
    """
    if not _has_own_flags(config):
        if not can_leave(config):
            return ()
        raise CaptureError(
            "autocluster=True needs a process of its own: name tf_profile among the test's arguments, or mark the test itself"
        )
    flags = {
        _name(flag): flag.removesuffix("=true")
        for flag in _split(os.environ.get("TF_XLA_FLAGS", ""))
    }
    if dropped := [flag for flag in _AUTOCLUSTERING if _name(flag) not in flags]:
        raise CaptureError(
            f"autocluster=True had set {' '.join(dropped)} in TF_XLA_FLAGS, and it was overwritten: a conftest must add to it"
        )
    others = ((ours, flags[_name(ours)]) for ours in _AUTOCLUSTERING)
    return tuple(
        f"TF_XLA_FLAGS had {flag}, which autocluster=True left ({ours} is its own)"
        for ours, flag in others
        if flag != ours
    )


def _has_own_flags(config: pytest.Config) -> bool:
    """Whether this process was started with the flags of its tests: one of its own, or a side of a paired run."""
    return (
        config.pluginmanager.hasplugin(CHILD)
        or getattr(config.option, "tfperf_side", None) is not None
    )


def run_test(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run one test in a process of its own, and log its reports here."""
    log_reports(item, nextitem, _reports(item))


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """The reports of a test from its process, and one of a failure where that ended too soon."""
    with tempfile.TemporaryDirectory(prefix="tfperf-") as name:
        folder = Path(name)
        try:
            status, ended = _run(item, folder), True
        except (
            OSError,
            pytest.fail.Exception,
        ) as error:  # the latter is what plugins for time limits raise
            status, ended = str(error), False
        events = _read(folder / EVENTS)
        stderr = _read_text(folder / "stderr")
    for warning in events["warning"]:
        record_warning(item, warning)
    reports = [report_from(item, report) for report in events["report"]]
    yield from reports
    if ended and events["stopped"]:
        pytest.exit(events["stopped"][0])
    if not has_ended(reports):
        died = f"{status} in the {next_phase(reports)} of a test in a process of its own (autocluster=True){excerpt(stderr)}"
        yield failed_report(item, next(iter(events["missing"]), died), reports)


def _run(item: pytest.Item, folder: Path) -> str:
    """Run the process to its end, and give how it ended."""
    config = item.config
    (folder / TASK).write_text(json.dumps(_task(item), default=str), "utf-8")
    environment = {
        **uncovered_environment(),
        "TF_XLA_FLAGS": autoclustering_flags(os.environ.get("TF_XLA_FLAGS", "")),
    }
    passed_through = getattr(config.option, "capture", "no") != "fd"
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            _command(config, folder),
            stdin=subprocess.PIPE,  # a byte tells it to end, and so does its being closed
            stdout=None if passed_through else subprocess.DEVNULL,
            stderr=None if passed_through else stderr,
            cwd=config.invocation_params.dir,
            env=environment,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        process.wait()
    except BaseException:
        with suppress(OSError, subprocess.TimeoutExpired):
            os.write(process.stdin.fileno(), b"\n")
            process.wait(GRACE_S)
        raise
    finally:
        kill(process)
        process.stdin.close()
    return status_text(process.returncode)


def _command(config: pytest.Config, folder: Path) -> list[str]:
    arguments = map(str, config.invocation_params.args)
    return pytest_command(
        config, sys.path, ["-p", CHILD, f"--tfperf-own-process={folder}", *arguments]
    )


def _task(item: pytest.Item) -> dict[str, Any]:
    """What the process is told besides its arguments."""
    factory = getattr(item.config, "_tmp_path_factory", None)
    return {
        "file": str(item.path),
        "names": names_in_file(item),
        "basetemp": str(factory.mktemp("own-process")) if factory else None,
        "argv": sys.argv,
        "options": alike_options(item.config),
        "workerinput": getattr(item.config, "workerinput", None),
    }


def _read(path: Path) -> dict[str, list[Any]]:
    """What was sent, by its kind: one JSON object a line; a line that was cut short is left out."""
    events: dict[str, list[Any]] = defaultdict(list)
    for line in _read_text(path).split("\n")[:-1]:
        for kind, value in json.loads(line).items():
            events[kind].append(value)
    return events


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _split(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:
        return flags.split()


def _name(flag: str) -> str:
    return flag.partition("=")[0]


def autoclustering_flags(given: str) -> str:
    """
    TF_XLA_FLAGS that cluster whatever can be; a flag that is given already keeps its value.

    TensorFlow takes what does not begin with a dash for the name of a file that holds flags (openxla/xla, parse_flags_from_env.cc).

    Raises:
        OSError: If there is such a file name, and it cannot be read.
    """
    given = given.strip()
    if given and not given.startswith("-"):
        given = Path(given).read_text("utf-8").strip()
    names = {_name(flag) for flag in _split(given)}
    return " ".join(
        [*(flag for flag in _AUTOCLUSTERING if _name(flag) not in names), *filter(None, [given])]
    )
