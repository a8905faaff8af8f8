"""What every pytest of ours in a process of its own does: be silent, leave to its parent what is a whole run's, and send reports."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# what selects, distributes, stops, asks or writes for a whole run; the process that was asked for it does it
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
_PLUGINS = ("lfplugin", "nfplugin", "stepwiseplugin", "tfperf-controller", "tfperf-referee")
_SILENCE = "tfperf-silence"


def run_only(
    config: pytest.Config,
    files: Sequence[str],
    basetemp: str | None,
    argv: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Before it is configured, let a run be of these files alone, ask for nothing else, and have these options."""
    for name, value in {**_OPTIONS, **options}.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    for name in _PLUGINS:
        config.pluginmanager.set_blocked(name)
    config.option.basetemp = basetemp
    if not any(
        "[" in file or "::" in file for file in files
    ):  # which pytest does not take for a path
        config.args[:] = files
    sys.argv[:] = argv


@contextmanager
def silenced(config: pytest.Config) -> Iterator[None]:
    """Let the terminal's reporter, which pytest and its plugins cannot do without, write to nowhere; tests print where they did."""
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        config.pluginmanager.register(_Silence(sys.stdout), _SILENCE)
        sys.stdout = nothing
        yield


class _Silence:
    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """When all is configured, print what is printed."""
        sys.stdout = self._stdout


class Reporting:
    """A plugin that sends what is to be known of tests as it becomes known; how, is `send`'s."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.errors: dict[str, str] = {}

    def send(self, **event: Any) -> None:
        """Send one event, made of plain JSON values."""
        raise NotImplementedError

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected."""
        if report.failed:
            self.errors[report.nodeid] = report.longreprtext

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a phase's report; before, the terminal's reporter lets a test fail with its subtests."""
        self.send(
            report=self._config.hook.pytest_report_to_serializable(
                config=self._config, report=report
            )
        )

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, location: Any
    ) -> None:
        """Send a warning of the test; what is warned of before is known where the run began."""
        if when == "runtest":
            category = warning_message.category
            self.send(
                warning={
                    "message": str(warning_message.message),
                    "module": category.__module__,
                    "category": category.__name__,
                    "filename": warning_message.filename,
                    "lineno": warning_message.lineno,
                    "location": location,
                }
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Let pytest, which collects garbage five times when it ends, not look through all of a loaded TensorFlow: that takes a second."""
        gc.freeze()

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Send that the test stopped the run."""
        self.send(stopped=str(excinfo.value) or type(excinfo.value).__name__)
