"""
The pytest plugin of a child process: collect once, then run the tests that the parent names.

`child.command` loads it by name. Its `CoordinatedServer` also lets profiles take turns.
"""

from __future__ import annotations

import argparse
import importlib
import socket
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from pytest_tfperf.child.base_plugin import Reporting, run_only, silenced
from pytest_tfperf.child.channel import Channel
from pytest_tfperf.child.messages import (
    AtProfile,
    Collected,
    Ended,
    FromChild,
    Judged,
    Part,
    Play,
    Profiled,
    Ran,
    Run,
    Task,
    ToChild,
)
from pytest_tfperf.child.node_names import node_key
from pytest_tfperf.child.plugin_names import CHILD_SERVER
from pytest_tfperf.markers import is_profiled
from pytest_tfperf.results import Check, Profile
from pytest_tfperf.turns import Ready, Turn
from pytest_tfperf.values import Json

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
    files = [Path(task.root, file) for file in task.files]
    run_only(config, [str(file) for file in files if file.exists()], task)
    kind = CoordinatedServer if task.coordinated else ChildServer
    config.pluginmanager.register(kind(config, channel, task), CHILD_SERVER)
    with silenced(config):
        return (yield)


class Extension(Protocol):
    """Additional duties of a child process; its module defines `extension(root, data)`."""

    def void_reasons(self) -> list[str]:
        """Return why the code that was loaded makes a comparison void."""

    def keeps_traces(self) -> bool:
        """Return whether traces of this process are kept, if traces are."""


class ChildServer(Reporting):
    """Runs the tests that the parent names, and sends their reports."""

    def __init__(self, config: pytest.Config, channel: Channel[ToChild], task: Task) -> None:
        super().__init__(config)
        self._channel = channel
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

    def _receive(self) -> ToChild | None:
        try:
            return self._channel.receive()
        except EOFError:
            return None


class CoordinatedServer(ChildServer):
    """A child whose profiles take turns with those of other processes and are judged there."""

    def __init__(self, config: pytest.Config, channel: Channel[ToChild], task: Task) -> None:
        super().__init__(config, channel, task)
        self._extension = _extension(self._root, task.extension)

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
        return self.part is not None if self._extension is None else self._extension.keeps_traces()

    def checks(
        self, profiles: Iterable[Profile], tolerance: float | None, setting: Json
    ) -> list[Check] | None:
        """
        Return the coordinator's checks of the running test; None where it is not judged here.

        Args:
            profiles: Profiles of the test.
            tolerance: The slow-down that it allows; None if it names none.
            setting: Recorded setting of the environment that they were taken in.
        """
        answer = self.ask(
            Profiled(
                profiles=[profile.to_json() for profile in profiles],
                tolerance=tolerance,
                setting=setting,
                void=self._extension.void_reasons() if self._extension is not None else (),
            )
        )
        checks = answer.checks if isinstance(answer, Judged) else None
        return None if checks is None else [Check.from_json(check) for check in checks]

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

    def ran(self, step_s: float) -> Turn | None:
        return self._turn(Ran(step_s=step_s))

    def _turn(self, question: FromChild) -> Turn | None:
        answer = self._server.ask(question)
        return answer.turn if isinstance(answer, Play) else None


def _extension(root: Path, wanted: tuple[str, Json] | None) -> Extension | None:
    if wanted is None:
        return None
    module, data = wanted
    extension: Extension = importlib.import_module(module).extension(root, data)
    return extension


def _exit() -> NoReturn:
    pytest.exit("the parent of this child process has ended", returncode=2)
