"""
The pytest plugin of a side: a process that collects once, and then runs the test that its referee names and plays the turns it asks for.

It is loaded by name, in the processes of a paired run and of variants alone.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_tfperf.child.base_plugin import Reporting, run_only, silenced
from pytest_tfperf.child.channel import Channel
from pytest_tfperf.child.reports import names_in_file
from pytest_tfperf.machine.conditions import is_traced
from pytest_tfperf.markers import is_profiled
from pytest_tfperf.paired.loaded_code import (
    import_hooks,
    module_files,
    module_loaders,
    outside_tree,
)
from pytest_tfperf.paired.worktree import Tree
from pytest_tfperf.results import Check, Profile
from pytest_tfperf.turns import Ready, Turn
from pytest_tfperf.values import Json

PLUGIN, NAME = "pytest_tfperf.child.server", "tfperf-side"
_RUN_AGAIN = ("rerunfailures", "pytest_rerunfailures")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file descriptor of the socket to the referee."""
    parser.addoption("--tfperf-side", type=int, metavar="FD", help=argparse.SUPPRESS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Collect the files that the referee names, as far as they are here, and nothing else."""
    channel = Channel(socket.socket(fileno=config.option.tfperf_side))
    task = channel.receive()
    root = Path(task["root"])
    if task.get("workerinput") is not None:
        config.workerinput, config.workeroutput = task["workerinput"], {}  # type: ignore[attr-defined]
    run_only(
        config,
        [str(root / file) for file in task["files"] if (root / file).exists()],
        task["basetemp"],
        task["argv"],
        task.get("options", {}),
    )
    config.pluginmanager.register(Side(config, channel, task), NAME)
    with silenced(config):
        return (yield)


def test_name(item: pytest.Item, root: Path) -> str:
    """What both sides and their referee call a test: its file below the root of its tree, and the names in it."""
    return "::".join([Path(os.path.relpath(item.path, root)).as_posix(), *names_in_file(item)])


test_name.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest makes of the name


class Side(Reporting):
    """
    Serves a referee.

    `scratch` is a folder that is removed even if this process crashes; `part` says which variant of a comparison the running test
    is for, if it is: `{"variant", "profile", "earlier"}`, the last being the comparisons before it.
    """

    def __init__(self, config: pytest.Config, channel: Channel, task: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._channel = channel
        self._root = Path(task["root"])
        self._tree = _tree(task["tree"]) if task["tree"] else None
        self.scratch: str | None = task.get("scratch")
        self.part: Mapping[str, Any] | None = None
        self._items: dict[str, pytest.Item] = {}

    def send(self, **event: Any) -> None:
        """To the referee; without one there is nobody to run for."""
        try:
            self._channel.send(**event)
        except EOFError:
            pytest.exit(
                "the referee of this paired run has ended", returncode=pytest.ExitCode.INTERRUPTED
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Let no plugin run a test again: it meets its referee once."""
        manager = self._config.pluginmanager
        for plugin in filter(None, map(manager.get_plugin, _RUN_AGAIN)):
            manager.unregister(plugin)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Every test, whatever the options of the run select: the referee names them."""
        self._items = {test_name(item, self._root): item for item in items}
        yield
        items[:] = self._items.values()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        """Run what the referee names, until it closes its end."""
        profiled = [name for name, item in self._items.items() if is_profiled(item)]
        self.send(collected=list(self._items), profiled=profiled, errors=self.errors)
        while (command := self._receive()) is not None:
            self.part = command.get("part")
            item, following = self._items[command["run"]], self._items.get(command["next"])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.send(ended=True)
        return True

    def seat(self, profile: str, tolerance: float | None) -> _Seat | None:
        """Where a profile of the running test meets the referee; of a test that runs for one variant that profile alone does."""
        if not self.counts(profile):
            return None
        return _Seat(self, profile, tolerance)

    def counts(self, profile: str) -> bool:
        """Whether the profile of this name is wanted of this process; of a test that runs for one variant that variant's alone is."""
        return self.part is None or self.part["profile"] == profile

    def keeps(self, profile: str) -> bool:
        """
        Whether the trace of the profile of this name is kept, if traces are.

        Not the ref's, which would lie among the working tree's, nor that of a test that has run before and is asked again.
        """
        return self.counts(profile) and (
            self.part is not None if self._tree is None else self._root == self._tree.root
        )

    def checks(
        self, profiles: Iterable[Profile], tolerance: float | None, setting: Json
    ) -> list[Check] | None:
        """
        What the referee says of the profiles of the running test, which allows this slow-down (None: it says nothing of it).

        `setting` is what is recorded of the environment that they were taken in.

        None where it is not to be judged here.
        """
        told = {
            "profiles": [profile.to_json() for profile in profiles],
            "tolerance": tolerance,
            "setting": setting,
        }
        found = self.ask(**told, void=self._void_reasons())["checks"]
        return None if found is None else [Check.from_json(check) for check in found]

    def ask(self, **question: Any) -> dict[str, Any]:
        """What the referee answers, when it does: until then this process may be stopped."""
        self.send(**question)
        answer = self._receive()
        if answer is None:
            pytest.exit(
                "the referee of this paired run has ended", returncode=pytest.ExitCode.INTERRUPTED
            )
        return answer

    def _void_reasons(self) -> list[str]:
        """Why what has been loaded here makes a comparison void."""
        if self._tree is None:
            return []
        traced = [_TRACED] if is_traced() else []
        side: Literal["tree", "ref"] = "tree" if self._root == self._tree.root else "ref"
        files = module_files(sys.modules)
        return (
            traced
            + outside_tree(files, self._tree, side, sys.path)
            + import_hooks(files, module_loaders(sys.modules), self._tree)
        )

    def _receive(self) -> dict[str, Any] | None:
        try:
            return self._channel.receive()
        except EOFError:
            return None


_TRACED = "a tracer or profiler of Python runs in both processes (coverage, a debugger), which costs more than what is compared; run without it"


class _Seat:
    """See `turn.Seat`."""

    def __init__(self, side: Side, profile: str, tolerance: float | None) -> None:
        self._side, self._profile, self._tolerance = side, profile, tolerance

    def ready(self, ready: Ready) -> Turn | None:
        return _turn(
            self._side.ask(ready=asdict(ready), profile=self._profile, tolerance=self._tolerance)
        )

    def played(self, step_s: float) -> Turn | None:
        return _turn(self._side.ask(played=step_s))


def _tree(data: dict[str, Any]) -> Tree:
    tracked, here = (frozenset(data[name]) for name in ("tracked", "here"))
    return Tree(
        Path(data["root"]),
        Path(data["path"]),
        data["commit"],
        data["ref"],
        data["same"],
        tracked,
        here,
    )


def _turn(answer: dict[str, Any]) -> Turn | None:
    return Turn(**answer["turn"]) if answer["turn"] else None
