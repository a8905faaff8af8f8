"""
The pytest plugin that runs one test in a process of its own, and writes its reports where `own_process` reads them.

It is loaded by name, in that process alone.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

from pytest_tfperf.own_process import EVENTS, GRACE_S, TASK, names_in_file

# what selects, distributes, stops, asks or writes for a whole run; the process that was asked for it does it
_OPTIONS: dict[str, Any] = {
    "numprocesses": None, "dist": "no", "distload": False, "tx": [], "looponfail": False,
    "maxfail": 0, "continue_on_collection_errors": True, "pyargs": False,
    "usepdb": False, "trace": False, "cacheclear": False, "pastebin": None,
    "xmlpath": None, "log_file": os.devnull, "report_log": None, "htmlpath": None, "json_report": False, "allure_report_dir": None,
}  # fmt: skip
_PLUGINS = ("lfplugin", "nfplugin", "stepwiseplugin", "tfperf-controller")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the task is, and its reports are written."""
    parser.addoption("--tfperf-own-process", metavar="FOLDER", help=argparse.SUPPRESS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Before stdin is captured: end when it says so, or ends because whoever holds its other end was killed."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(lifeline, early_config.known_args_namespace.tfperf_own_process), daemon=True).start()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Ask for this one test and nothing else."""
    folder = Path(config.option.tfperf_own_process)
    task = json.loads((folder / TASK).read_text("utf-8"))
    for name, value in _OPTIONS.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    for name in _PLUGINS:
        config.pluginmanager.set_blocked(name)
    config.option.basetemp = task["basetemp"]
    if "[" not in task["file"] and "::" not in task["file"]:  # which pytest does not take for a path
        config.args[:] = [task["file"]]
    if task["workerinput"] is not None:
        config.workerinput, config.workeroutput = task["workerinput"], {}  # type: ignore[attr-defined]
    sys.argv[:] = task["argv"]
    with (folder / EVENTS).open("w", encoding="utf-8", buffering=1) as events, Path(os.devnull).open("w", encoding="utf-8") as nothing:
        config.pluginmanager.register(_OneTest(config, task["names"], events, sys.stdout))
        sys.stdout = nothing  # where the terminal's reporter writes, which pytest and its plugins cannot do without
        return (yield)


class _OneTest:
    """Leaves one test of those that are collected, and sends what is to be known of it."""

    def __init__(self, config: pytest.Config, names: list[str], events: TextIO, stdout: TextIO) -> None:
        self._config = config
        self._names = names
        self._events = events
        self._stdout = stdout
        self._errors: list[str] = []

    def _send(self, **event: Any) -> None:
        self._events.write(json.dumps(event, default=str) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """When all is configured, print what is printed."""
        sys.stdout = self._stdout

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected."""
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """The test, whatever else the options of the run select."""
        found = [item for item in items if names_in_file(item) == self._names]
        yield
        items[:] = found[:1]
        if not found:
            why = "\n".join(["the process of its own that autocluster=True gives a test did not collect it", *self._errors])
            self._send(missing=why)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a phase's report; before, the terminal's reporter lets a test fail with its subtests."""
        self._send(report=self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, location: Any) -> None:
        """Send a warning of the test; what is warned of before is known where the run began."""
        if when == "runtest":
            category = warning_message.category
            self._send(
                warning={
                    "message": str(warning_message.message), "module": category.__module__, "category": category.__name__,
                    "filename": warning_message.filename, "lineno": warning_message.lineno, "location": location,
                }
            )  # fmt: skip

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Send that the test stopped the run."""
        self._send(stopped=str(excinfo.value) or type(excinfo.value).__name__)


def _end_with(lifeline: int, folder: str) -> None:
    """Wait until a pipe says that this process is to end, or ends itself; then do so in order, or else at once."""
    if not os.read(lifeline, 1):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # nobody else is left to do it
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL) if hasattr(os, "killpg") else os._exit(1)
