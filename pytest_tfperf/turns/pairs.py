"""The processes of a paired run: pairs that all tests share, as long as memory allows it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import pytest

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import split_cores
from pytest_tfperf.machine.memory import available_bytes, private_bytes
from pytest_tfperf.turns.children import naming_awaited
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.names import file_below, node_key
from pytest_tfperf.turns.pytest_child import ChildProcess, start_pytest
from pytest_tfperf.turns.versions import find_versions, pytest_run
from pytest_tfperf.values import Unknown

_ROOM = 1.5
"""Memory that stays available while pairs wait, in multiples of what the first one holds."""


@dataclass(frozen=True, slots=True)
class ProcessPair:
    """A process for each version; that of the ref is Unknown if it could not start."""

    tree: ChildProcess
    ref: ChildProcess | Unknown

    @property
    def processes(self) -> list[ChildProcess]:
        """The processes that could start."""
        return [self.tree] if isinstance(self.ref, Unknown) else [self.tree, self.ref]

    @property
    def is_whole(self) -> bool:
        """True if none of the processes has ended."""
        return not any(process.has_ended for process in self.processes)

    def ref_with(self, test: str | None) -> ChildProcess | None:
        """Return the ref's process if it has collected a test."""
        if isinstance(self.ref, Unknown) or test not in self.ref.collected:
            return None
        return self.ref

    def collected(self) -> ProcessPair:
        """Return the pair when both have collected, or the working tree's. Raises: PairedError."""
        with naming_awaited(self.processes):
            self.tree.await_collected()
            try:
                for ref in self.processes[1:]:
                    ref.await_collected()
            except PairedError as error:
                return replace(self, ref=Unknown(str(error)))
        return self

    def dismiss(self) -> None:
        """Let the processes end in order, at the same time."""
        for process in self.processes:
            process.dismiss()

    def close(self) -> None:
        """End the processes in order, or else at once."""
        for process in self.processes:
            process.close()

    def interrupt(self) -> None:
        """End the processes as Ctrl-C does."""
        for process in self.processes:
            process.interrupt()

    def kill(self) -> None:
        """End the processes at once."""
        for process in self.processes:
            process.kill()


def _held_by(pair: ProcessPair) -> int:
    """Return the bytes of memory that a pair holds."""
    return private_bytes([process.pid for process in pair.processes])


class VersionProcesses:
    """
    Writes the ref's files, starts processes for both versions, and keeps pairs for later tests.

    TensorFlow reads XLA's flags when it starts. So tests with autocluster=True (`clustered`) have
    pairs of their own. Their first pair runs all tests. The second one runs those that the first
    leaves undecided; with `starts_ahead` it starts together with the first, so that TensorFlow's
    start costs little time. Each further pair runs those that the pairs before leave undecided. All
    of them stay for later tests, stopped while they wait, as long as there is memory for another
    pair. Raises: PairedError.
    """

    def __init__(
        self,
        config: pytest.Config,
        ref: str | None,
        python: Path | None = None,
        starts_ahead: bool = False,
    ) -> None:
        self.coordinator_cores, self.cores = split_cores()
        self._config, self._starts_ahead = config, starts_ahead
        self._pairs: dict[tuple[bool, int], ProcessPair] = {}
        self.start_s = 0.0
        """Seconds that the last start of processes took."""
        self._cleanup = Cleanup()
        try:
            self.versions = find_versions(config, ref, python, self._cleanup.folder)
        except BaseException:
            self._cleanup.close()
            raise
        self._order = [True, False]  # is the working tree's, for each process of a pair
        random.SystemRandom().shuffle(self._order)

    def key(self, item: pytest.Item) -> str:
        """Return the node key of a test in both versions."""
        return node_key(item, self.versions.tree.root)

    def pair(self, clustered: bool, items: Sequence[pytest.Item], n: int = 0) -> ProcessPair:
        """Return pair `n` of the test before, or a new one if it has ended. Raises: PairedError."""
        if not self.is_started(clustered, n):
            if (ended := self._pairs.pop((clustered, n), None)) is not None:
                ended.close()
            began = perf_counter()
            self._pairs[clustered, n] = self._new_pair(clustered, items, n)
            self.start_s = perf_counter() - began
        return self._pairs[clustered, n]

    def is_started(self, clustered: bool, n: int) -> bool:
        """Return whether `pair` has a pair, and starts none."""
        pair = self._pairs.get((clustered, n))
        return pair is not None and pair.is_whole

    def end_pair(self, clustered: bool, n: int) -> None:
        """End a pair, if there is one, as Ctrl-C does."""
        if (pair := self._pairs.pop((clustered, n), None)) is not None:
            pair.interrupt()

    def make_room(self) -> None:
        """End pairs after the second, the last one first, until there is memory for another one."""
        while later := [key for key in self._pairs if key[1] > 1]:
            firsts = [pair for (_, n), pair in self._pairs.items() if n == 0]
            left = available_bytes()
            if left is not None and left > _ROOM * max(map(_held_by, firsts), default=0):
                return
            self.end_pair(*max(later, key=lambda key: key[1]))

    def _new_pair(self, clustered: bool, items: Sequence[pytest.Item], n: int) -> ProcessPair:
        """Start a pair and await it; the first one together with the second."""
        if n > 1:
            self.make_room()
        with ExitStack() as unless_ready:
            first = self._start(clustered, items, n, self.cores)
            unless_ready.callback(first.kill)
            second = None
            if n == 0 and self._starts_ahead and (clustered, 1) not in self._pairs:
                second = self._start(clustered, items, 1, self._cores_ahead())
                unless_ready.callback(second.kill)
            pair = first.collected()
            if second is not None:
                try:
                    ahead = self._pairs[clustered, 1] = second.collected()
                    for process in ahead.processes:
                        process.move_to(self.cores)
                except PairedError:  # it shows again where the second pair is wanted
                    second.kill()
            unless_ready.pop_all()
        return pair

    def _cores_ahead(self) -> Sequence[int]:
        """
        Return the cores on which the second pair starts while the first one does.

        TensorFlow sizes its thread pools by the number of cores that it starts on. So the
        coordinator's core serves only where the pairs have no more cores than that.
        """
        alike = len(self.coordinator_cores) == len(self.cores)
        return self.coordinator_cores if alike else self.cores

    def _start(
        self, clustered: bool, items: Sequence[pytest.Item], n: int, cores: Sequence[int]
    ) -> ProcessPair:
        """
        Start two processes that collect the files of some tests at the same time.

        The first pair starts in random order, the second in reverse, and so on. Of two processes of
        the same code, the one that started well before the other was 0.3 % slower (22 pairs of
        either order). So a second pair does not favour the version that the first one did.
        """
        root = self.versions.tree.root
        files = sorted({file_below(item, root) for item in items})
        started: dict[bool, ChildProcess] = {}
        why = ""
        with ExitStack() as unless_started:  # a time limit or Ctrl-C may end this at any line
            for is_tree in self._order[:: -1 if n % 2 else 1]:
                try:
                    run = pytest_run(self._config, self.versions, is_tree, files, clustered, n == 0)
                    started[is_tree] = start_pytest(replace(run, cores=cores), self._cleanup)
                    unless_started.callback(started[is_tree].kill)
                except (PairedError, OSError) as error:  # as of a temporary folder of another user
                    who = self.versions.here if is_tree else self.versions.name
                    is_told = isinstance(error, PairedError)
                    why = str(error) if is_told else f"{who} cannot be run: {error}"
                    if is_tree:
                        raise PairedError(why) from error
            unless_started.pop_all()
        return ProcessPair(started[True], started.get(False) or Unknown(why))

    def only_on_ref(self) -> list[str]:
        """Return the profiled tests that the ref's processes alone have collected."""
        return sorted(
            {
                test
                for (_, n), pair in self._pairs.items()
                if n == 0 and not isinstance(pair.ref, Unknown)
                for test in pair.ref.profiled
                if test not in pair.tree.collected
            }
        )

    def interrupt(self) -> None:
        """End all processes as Ctrl-C does."""
        self._dismiss_later()
        for pair in self._pairs.values():
            pair.interrupt()
        self._pairs.clear()

    def close(self) -> None:
        """End all processes in order, or else at once, and remove the ref's files."""
        try:
            self._dismiss_later()
            for pair in self._pairs.values():
                pair.close()
        finally:
            self._cleanup.close()

    def _dismiss_later(self) -> None:
        """Let later pairs end; in the first, fixtures may be set up, which end one at a time."""
        for (_, n), pair in self._pairs.items():
            if n > 0:
                pair.dismiss()
