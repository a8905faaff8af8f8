"""
The pytest plugin of a child process: collect once, then run the tests that the parent names.

`pytest_child` loads it by name. Such a run is silent, and has no effects of a whole run.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_tfperf.frameworks.tensorflow import leave_thread_pools
from pytest_tfperf.markers import is_profiled
from pytest_tfperf.results import Check, Profile
from pytest_tfperf.turn import Ready, Turn
from pytest_tfperf.turns.loaded_code import void_reasons
from pytest_tfperf.turns.messages import (
    AtProfile,
    Channel,
    Collected,
    Ended,
    FromChild,
    Judged,
    Part,
    Play,
    Profiled,
    Ran,
    Reported,
    Run,
    Stopped,
    Task,
    ToChild,
    Warned,
)
from pytest_tfperf.turns.names import CHILD_SERVER, CONTROLLER, COORDINATOR, SILENCE, node_key
from pytest_tfperf.values import Json

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
_RUN_AGAIN = ("rerunfailures", "pytest_rerunfailures")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the hidden option for the file descriptor of the socket to the parent."""
    parser.addoption("--tfperf-child", type=int, metavar="FD", help=argparse.SUPPRESS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Receive the task, and restrict the run to its files."""
    channel = Channel[ToChild](socket.socket(fileno=config.option.tfperf_child), ToChild)
    task = channel.receive()
    assert isinstance(task, Task)
    if task.workerinput is not None:
        config.workerinput = task.workerinput  # type: ignore[attr-defined]
        config.workeroutput = {}  # type: ignore[attr-defined]
    if task.frees_threads:
        leave_thread_pools()
    files = [Path(task.root, file) for file in task.files]
    _run_only(config, [str(file) for file in files if file.exists()], task)
    kind = CoordinatedServer if task.is_coordinated else ChildServer
    config.pluginmanager.register(kind(config, channel, task), CHILD_SERVER)
    with _silenced(config):
        return (yield)


def _run_only(config: pytest.Config, files: Sequence[str], task: Task) -> None:
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
def _silenced(config: pytest.Config) -> Iterator[None]:
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


class ChildServer:
    """Runs the tests that the parent names, and sends their reports."""

    def __init__(self, config: pytest.Config, channel: Channel[ToChild], task: Task) -> None:
        self._config, self._channel = config, channel
        self.errors: dict[str, str] = {}
        """Collection errors by node."""
        self._root = Path(task.root)
        self.scratch = task.scratch
        """A folder that is removed even if this process crashes."""
        self.part: Part | None = None
        """The call that the running test is for, if it is for one."""
        self._items: dict[str, pytest.Item] = {}

    def send(self, event: FromChild) -> None:
        """Send an event; end the run if the parent has ended."""
        try:
            self._channel.send(event)
        except EOFError:
            _exit()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Keep every test, whatever the options of the run select: the parent names them."""
        self._items = {node_key(item, self._root): item for item in items}
        yield
        items[:] = self._items.values()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        """Run the tests that the parent names, until it closes its end."""
        profiled = [key for key, item in self._items.items() if is_profiled(item)]
        self.send(Collected(tests=list(self._items), profiled=profiled, errors=self.errors))
        while isinstance(run := self._receive(), Run):
            self.part = run.part
            item = self._items[run.test]
            following = self._items.get(run.following) if run.following else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.send(Ended())
        return True

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

    def _receive(self) -> ToChild | None:
        try:
            return self._channel.receive()
        except EOFError:
            return None


class CoordinatedServer(ChildServer):
    """A child whose profiles take turns with those of other processes and are judged there."""

    def __init__(self, config: pytest.Config, channel: Channel[ToChild], task: Task) -> None:
        super().__init__(config, channel, task)
        self._version = task.version

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Unload plugins that run failed tests again: each test is paired once."""
        manager = self._config.pluginmanager
        for plugin in filter(None, map(manager.get_plugin, _RUN_AGAIN)):
            manager.unregister(plugin)

    def turn_client(self, profile: str, tolerance: float | None) -> _ChildTurnClient | None:
        """Return the turn client of a profile of the running test, None if it takes no turns."""
        return _ChildTurnClient(self, profile, tolerance) if self.counts(profile) else None

    def counts(self, profile: str) -> bool:
        """Return whether this process is to measure a profile: a variant's process only its own."""
        return self.part is None or self.part.profile == profile

    def keeps(self, profile: str) -> bool:
        """
        Return whether the trace of a profile is kept, if traces are.

        Those of the ref would lie among the working tree's. Those of a second process for the same
        test repeat the first one's.
        """
        if self.part is not None and self.part.profile is None:
            return True
        if not self.counts(profile):
            return False
        version = self._version
        return self.part is not None if version is None else version.is_tree and version.is_first

    @property
    def is_judged(self) -> bool:
        """True if its tests are the ones that are reported: the working tree's, once."""
        version = self._version
        return version is not None and version.is_tree and version.is_first

    def checks(
        self, profiles: Iterable[Profile], tolerance: float | None, setting: Json
    ) -> Sequence[Check] | None:
        """Return the coordinator's checks of the running test; None where it is not judged here."""
        answer = self.ask(
            Profiled(
                profiles=tuple(replace(profile, result=None) for profile in profiles),
                tolerance=tolerance,
                setting=setting,
                void=void_reasons(self._version) if self._version is not None else (),
            )
        )
        return answer.checks if isinstance(answer, Judged) else None

    def ask(self, question: FromChild) -> ToChild:
        """Ask the coordinator, and wait for its answer; until then this process may be stopped."""
        self.send(question)
        answer = self._receive()
        if answer is None:
            _exit()
        return answer


class _ChildTurnClient:
    """See `turns.TurnClient`."""

    def __init__(self, server: CoordinatedServer, profile: str, tolerance: float | None) -> None:
        self._server, self._profile, self._tolerance = server, profile, tolerance

    def ready(self, ready: Ready) -> Turn | None:
        at_profile = AtProfile(profile=self._profile, ready=ready, tolerance=self._tolerance)
        return self._turn(at_profile)

    def ran(self, step_s: float, cpu_s: float | None) -> Turn | None:
        return self._turn(Ran(step_s=step_s, cpu_s=cpu_s))

    def _turn(self, question: FromChild) -> Turn | None:
        answer = self._server.ask(question)
        return answer.turn if isinstance(answer, Play) else None


def _exit() -> NoReturn:
    pytest.exit("the parent of this child process has ended", returncode=2)
