"""Common behaviour of child pytest processes: silent, no run-wide side effects, reports sent."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.messages import FromChild, Reported, Stopped, Task, Warned
from pytest_tfperf.child.plugin_names import CONTROLLER, COORDINATOR, SILENCE

# options that select, distribute, stop, ask or write for a whole run, which the parent does
_OPTIONS: dict[str, Any] = {
    "numprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "maxfail": 0,
    "continue_on_collection_errors": True,
    "pyargs": False,
    "usepdb": False,
    "trace": False,
    "cacheclear": False,
    "pastebin": None,
    "benchmark_json": None,
    "benchmark_autosave": None,
    "benchmark_save": None,
    "benchmark_compare": None,
    "benchmark_histogram": None,
    "xmlpath": None,
    "log_file": os.devnull,
    "report_log": None,
    "htmlpath": None,
    "json_report": False,
    "allure_report_dir": None,
}
_PLUGINS = ("lfplugin", "nfplugin", "stepwiseplugin", CONTROLLER, COORDINATOR)


def run_only(config: pytest.Config, files: Sequence[str], task: Task) -> None:
    """Restrict a run to some files, before it is configured, and drop what concerns whole runs."""
    for name, value in {**_OPTIONS, **task.options}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    for name in _PLUGINS:
        config.pluginmanager.set_blocked(name)
    config.option.basetemp = task.basetemp
    # pytest does not take arguments with these for paths
    if not any("[" in file or "::" in file for file in files):
        config.args[:] = files
    sys.argv[:] = task.argv


@contextmanager
def silenced(config: pytest.Config) -> Iterator[None]:
    """
    Let pytest's terminal reporter write to nowhere within the context.

    pytest and its plugins need the reporter. Tests print where they did.
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        config.pluginmanager.register(_Silence(sys.stdout), SILENCE)
        sys.stdout = nothing
        yield


class _Silence:
    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Restore stdout after all is configured."""
        sys.stdout = self._stdout


class Reporting:
    """A plugin that sends reports, warnings and collection errors; subclasses define `send`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.errors: dict[str, str] = {}

    def send(self, event: FromChild) -> None:
        """Send one event."""
        raise NotImplementedError

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep collection errors."""
        if report.failed:
            self.errors[report.nodeid] = report.longreprtext

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report; the terminal reporter, before, lets a test fail with its subtests."""
        hook = self._config.hook.pytest_report_to_serializable
        self.send(Reported(report=hook(config=self._config, report=report)))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, location: Any
    ) -> None:
        """Send a warning of the test; the parent has seen those of collection itself."""
        if when == "runtest":
            category = warning_message.category
            self.send(
                Warned(
                    message=str(warning_message.message),
                    module=category.__module__,
                    category=category.__name__,
                    filename=warning_message.filename,
                    lineno=warning_message.lineno,
                    location=location,
                )
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """
        Exclude all objects so far from garbage collection.

        pytest collects five times when it ends; through a loaded TensorFlow that takes a second.
        """
        gc.freeze()

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell the parent that the test stopped the run."""
        self.send(Stopped(why=str(excinfo.value) or type(excinfo.value).__name__))
