"""
A test in a process of its own, where TensorFlow starts with that test's flags.

The process runs pytest again with the same arguments and collects this one test; its reports come back as those of xdist's workers do.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_tfperf.errors import CaptureError

CHILD = "pytest_tfperf.own_process_child"
TASK, EVENTS = "task.json", "events.jsonl"
GRACE_S = 5.0
"""How long a process may take to end in order when it is told to."""

# without the second nothing clusters on a CPU (TensorFlow, tensorflow/compiler/jit/flags.cc)
_AUTOCLUSTERING = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")
_STDERR_LINES = 12


def can_leave(config: pytest.Config) -> bool:
    """Whether a test of this run can go to a process of its own: it is in none yet, and the run is to execute tests as they are."""
    return not (config.pluginmanager.hasplugin(CHILD) or getattr(config.option, "setuponly", False) or config.option.tfperf_disable)


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
    return " ".join([*(flag for flag in _AUTOCLUSTERING if _name(flag) not in names), *filter(None, [given])])


def other_flags(config: pytest.Config) -> tuple[str, ...]:
    """
    What TF_XLA_FLAGS of this process says of autoclustering in other words than ours, as notes.

    Raises:
        CaptureError: If this process does not have the flags at all.
    """
    if not config.pluginmanager.hasplugin(CHILD):
        if not can_leave(config):
            return ()
        raise CaptureError(
            "autocluster=True needs a process of its own: name tf_profile among the test's arguments, or mark the test itself"
        )
    flags = {_name(flag): flag.removesuffix("=true") for flag in _split(os.environ.get("TF_XLA_FLAGS", ""))}
    if dropped := [flag for flag in _AUTOCLUSTERING if _name(flag) not in flags]:
        raise CaptureError(
            f"autocluster=True had set {' '.join(dropped)} in TF_XLA_FLAGS, and it was overwritten: a conftest must add to it"
        )
    others = ((ours, flags[_name(ours)]) for ours in _AUTOCLUSTERING)
    return tuple(f"TF_XLA_FLAGS had {flag}, which autocluster=True left ({ours} is its own)" for ours, flag in others if flag != ours)


def run_test(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run one test in a process of its own, and log its reports here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    # fixtures of tests before this one, which the next does not use, are still set up in this process
    following = None if item.session.shouldfail or item.session.shouldstop else nextitem
    left = _call(lambda: item.session._setupstate.teardown_exact(following), "teardown")
    if left.excinfo is not None:
        item.ihook.pytest_runtest_logreport(report=pytest.TestReport.from_item_and_call(item, left))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def names_in_file(item: pytest.Item) -> list[str]:
    """The names of a test and of what holds it, from below the file on."""
    return [node.name for node in item.listchain() if not isinstance(node, (pytest.Session, pytest.Directory, pytest.File))]


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """The reports of a test from its process, and one of a failure where that ended too soon."""
    with tempfile.TemporaryDirectory(prefix="tfperf-") as name:
        folder = Path(name)
        try:
            status, ended = _run(item, folder), True
        except (OSError, pytest.fail.Exception) as error:  # the latter is what plugins for time limits raise
            status, ended = str(error), False
        events = _read(folder / EVENTS)
        stderr = _read_text(folder / "stderr")
    for warning in events["warning"]:
        _record_warning(item, warning)
    reports = [_report(item, report) for report in events["report"]]
    yield from reports
    if ended and events["stopped"]:
        pytest.exit(events["stopped"][0])
    if not any(report.when == "teardown" for report in reports):
        phase = _phase(reports)
        died = f"{status} in the {phase} of a test in a process of its own (autocluster=True){_excerpt(stderr)}"
        message = next(iter(events["missing"]), died)
        yield pytest.TestReport.from_item_and_call(item, _call(lambda: pytest.fail(message, pytrace=False), phase))


def _run(item: pytest.Item, folder: Path) -> str:
    """Run the process to its end, and give how it ended."""
    config = item.config
    (folder / TASK).write_text(json.dumps(_task(item), default=str), "utf-8")
    environment = {**os.environ, "TF_XLA_FLAGS": autoclustering_flags(os.environ.get("TF_XLA_FLAGS", ""))}
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
        _kill(process)
        process.stdin.close()
    return _status(process.returncode)


def _command(config: pytest.Config, folder: Path) -> list[str]:
    start = f"import sys; sys.path[:] = {[str(path) for path in sys.path]!r}; import pytest; sys.exit(pytest.main())"
    uncovered = ["--no-cov"] if config.pluginmanager.hasplugin("pytest_cov") else []
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return [
        sys.executable, *flags, "-c", start, "-p", CHILD, f"--tfperf-own-process={folder}", *uncovered,
        *map(str, config.invocation_params.args),
    ]  # fmt: skip


def _task(item: pytest.Item) -> dict[str, Any]:
    """What the process is told besides its arguments."""
    factory = getattr(item.config, "_tmp_path_factory", None)
    return {
        "file": str(item.path),
        "names": names_in_file(item),
        "basetemp": str(factory.mktemp("own-process")) if factory else None,
        "argv": sys.argv,
        "workerinput": getattr(item.config, "workerinput", None),
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _status(code: int) -> str:
    """An exit status, or the signal that a negative one stands for, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _read(path: Path) -> dict[str, list[Any]]:
    """What was sent, by its kind: one JSON object a line; a line that was cut short is left out."""
    events: dict[str, list[Any]] = defaultdict(list)
    for line in _read_text(path).split("\n")[:-1]:
        for kind, value in json.loads(line).items():
            events[kind].append(value)
    return events


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _report(item: pytest.Item, data: Any) -> Any:
    report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
    report.nodeid = item.nodeid  # a worker of xdist's has a group in it
    if isinstance(report.longrepr, list):
        report.longrepr = tuple(report.longrepr)  # of a skip: where and why
    return report


def _record_warning(item: pytest.Item, data: dict[str, Any]) -> None:
    category = getattr(sys.modules.get(data["module"]), data["category"], UserWarning)
    message = warnings.WarningMessage(data["message"], category, data["filename"], data["lineno"])
    location = tuple(data["location"]) if data["location"] else None
    item.config.hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "nodeid": item.nodeid, "when": "runtest", "location": location}
    )


def _phase(reports: Iterable[pytest.TestReport]) -> Literal["setup", "call", "teardown"]:
    """The first phase that was not reported."""
    outcomes = {report.when: report.outcome for report in reports}
    if "setup" not in outcomes:
        return "setup"
    return "teardown" if "call" in outcomes or outcomes["setup"] != "passed" else "call"


def _call(function: Any, phase: Literal["setup", "call", "teardown"]) -> pytest.CallInfo[None]:
    return pytest.CallInfo.from_call(function, phase, reraise=(pytest.exit.Exception, KeyboardInterrupt))


def _excerpt(stderr: str) -> str:
    """From where faulthandler shows the line that crashed, else the last lines."""
    lines = stderr.rstrip().splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("Current thread")), max(len(lines) - _STDERR_LINES, 0))
    return "".join(f"\n  {line}" for line in ["its stderr:", *lines[start : start + _STDERR_LINES]]) if lines else ""


def _split(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError:
        return flags.split()


def _name(flag: str) -> str:
    return flag.partition("=")[0]
