"""The ref's files and the processes that a paired run's tests have: a pair that all share, and fresh ones where they are asked for."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.child.isolated_test import autoclustering_flags
from pytest_tfperf.child.process import ALIKE, Player, start_side
from pytest_tfperf.child.reports import given_arguments, uncovered_environment
from pytest_tfperf.child.server import test_name
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import split_cores
from pytest_tfperf.paired.worktree import Tree, mapped, mapped_argument, write_tree


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides; of the ref's `why` there is none."""

    tree: Player
    ref: Player | None
    why: str = ""

    @property
    def players(self) -> list[Player]:
        """Those that there are."""
        return [self.tree] if self.ref is None else [self.tree, self.ref]

    @property
    def is_whole(self) -> bool:
        """Whether none has ended."""
        return not any(player.has_ended for player in self.players)

    def close(self) -> None:
        """End them in order, or else at once."""
        for player in self.players:
            player.close()

    def interrupt(self) -> None:
        """End them as Ctrl-C does."""
        for player in self.players:
            player.interrupt()


class Sides:
    """
    Writes the ref's files, starts processes on the working tree and on them, and keeps those that the next test can have too.

    TensorFlow reads XLA's flags when it starts: tests with autocluster=True, which are `clustered`, have a pair of their own.

    Raises:
        PairedError: If the files cannot be had.
    """

    def __init__(self, config: pytest.Config, ref: str) -> None:
        self.referee_cores, self.cores = split_cores()
        self._config = config
        self._pairs: dict[bool, Pair] = {}
        self._janitor = Janitor()
        try:
            self.tree = write_tree(ref, Path(config.invocation_params.dir), self._janitor.folder)
        except BaseException:
            self._janitor.close()
            raise
        self._order = [self.tree, replace(self.tree, path=self.tree.root)]
        random.SystemRandom().shuffle(self._order)

    def name(self, item: pytest.Item) -> str:
        """What the sides call a test."""
        return test_name(item, self.tree.root)

    def pair(self, clustered: bool, items: Sequence[pytest.Item]) -> Pair:
        """
        The sides that all these tests run on: those of the test before, or new ones where there are none or one has ended.

        Raises:
            PairedError: If the working tree's cannot start.
        """
        pair = self._pairs.get(clustered)
        if pair is None or not pair.is_whole:
            if pair is not None:
                pair.close()
            pair = self._pairs[clustered] = self.fresh_pair(clustered, items)
        return pair

    def fresh_pair(self, clustered: bool, items: Sequence[pytest.Item]) -> Pair:
        """
        Two new processes that have collected the files of these tests, both at once where there are cores for it.

        The first pair starts in random order, each later one in the other: of two processes of the same code the one that started well
        before the other was 0.3 % slower (22 pairs of either order), so a second pair shall not favour the side that the first one did.

        Raises:
            PairedError: If the working tree's cannot.
        """
        files = sorted(
            {Path(os.path.relpath(item.path, self.tree.root)).as_posix() for item in items}
        )
        self._order.reverse()
        players: dict[Path, Player] = {}
        why = ""
        try:
            for tree in self._order:
                try:
                    players[tree.path] = self._started(tree, clustered, files)
                except PairedError as error:
                    if tree.path == tree.root:
                        raise
                    why = str(error)
            with awaited_named(list(players.values())):
                ours = players[self.tree.root]
                ours.await_collected()
                return Pair(ours, *_collected(players.get(self.tree.path), why))
        except BaseException:  # a limit of time, or Ctrl-C
            for player in players.values():
                player.kill()
            raise

    def only_on_ref(self) -> list[str]:
        """The profiled tests that the ref's processes have collected, and the working tree's have not."""
        refs = [(pair.ref, pair.tree) for pair in self._pairs.values() if pair.ref is not None]
        return sorted(
            {test for ref, tree in refs for test in ref.profiled if test not in tree.collected}
        )

    def interrupt(self) -> None:
        """End all as Ctrl-C does."""
        for pair in self._pairs.values():
            pair.interrupt()
        self._pairs.clear()

    def close(self) -> None:
        """End all in order, or else at once, and remove the ref's files."""
        try:
            for pair in self._pairs.values():
                pair.close()
        finally:
            self._janitor.close()

    def _started(self, tree: Tree, clustered: bool, files: Sequence[str]) -> Player:
        is_ours = tree.path == tree.root
        cwd = mapped(Path(self._config.invocation_params.dir), tree)
        cwd.mkdir(parents=True, exist_ok=True)
        return start_side(
            self._config,
            "the working tree's process" if is_ours else f"the process on {tree.ref}",
            self._janitor,
            self.cores,
            root=tree.path,
            files=files,
            tree=_json(self.tree),
            path=[_mapped(entry, tree) for entry in sys.path],
            arguments=[
                mapped_argument(argument, tree) for argument in given_arguments(self._config)
            ],
            cwd=cwd,
            environment=_environment(tree, clustered),
            shows_output=is_ours and getattr(self._config.option, "capture", "no") != "fd",
        )


@contextmanager
def awaited_named(players: Sequence[Player]) -> Iterator[None]:
    """Within the context a limit of time that strikes names the process that was waited for, with what that has printed."""
    try:
        yield
    except pytest.fail.Exception as error:  # which plugins for time limits raise
        asked = [player for player in players if player.is_awaited and not player.has_ended]
        said = "".join(f"\n  {player.label} had not answered{player.output()}" for player in asked)
        raise pytest.fail.Exception(f"{error}{said}", pytrace=False) from None


def _collected(ref: Player | None, why: str) -> tuple[Player | None, str]:
    """The ref's process when it has collected, or why there is none."""
    try:
        if ref is not None:
            ref.await_collected()
        return ref, why
    except PairedError as error:
        return None, str(error)


def _environment(tree: Tree, clustered: bool) -> Mapping[str, str]:
    """That of this process, with Python's paths mapped, and what must be alike on both sides."""
    given = uncovered_environment()
    paths = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = {"PYTHONPATH": os.pathsep.join(_mapped(entry, tree) for entry in paths)} if paths else {}
    flags = (
        {"TF_XLA_FLAGS": autoclustering_flags(given.get("TF_XLA_FLAGS", ""))} if clustered else {}
    )
    return {**given, **ALIKE, **own, **flags, "PWD": str(mapped(Path.cwd(), tree))}


def _mapped(entry: str, tree: Tree) -> str:
    """An entry of sys.path; the empty one is the current folder, which is mapped by itself."""
    return str(mapped(entry, tree)) if entry else ""


def _json(tree: Tree) -> dict[str, Any]:
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in asdict(tree).items()
    }
