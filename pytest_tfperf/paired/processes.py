"""The processes of a paired run: pairs that all tests share, and fresh pairs where wanted."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_tfperf.child.children import naming_awaited
from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.command import PytestRun, start_pytest
from pytest_tfperf.child.node_names import node_key
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import split_cores
from pytest_tfperf.paired.versions import Target, find_versions, pytest_run
from pytest_tfperf.values import Unknown


@dataclass(frozen=True, slots=True)
class ProcessPair:
    """A process for each version; that of the ref is Unknown if it could not start."""

    tree: ChildProcess
    """The working tree's process."""
    ref: ChildProcess | Unknown
    """The ref's process."""

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

    def close(self) -> None:
        """End the processes in order, or else at once."""
        for process in self.processes:
            process.close()

    def interrupt(self) -> None:
        """End the processes as Ctrl-C does."""
        for process in self.processes:
            process.interrupt()


class VersionProcesses:
    """
    Writes the ref's files, starts processes for both versions, and keeps pairs for later tests.

    TensorFlow reads XLA's flags when it starts. So tests with autocluster=True (`clustered`) have
    pairs of their own. Their first pair runs all tests. The second one runs those that the first
    leaves undecided; it starts together with the first, so that TensorFlow's start costs little
    time. Further pairs run one test each.

    Args:
        config: The run's configuration.
        target: What is compared with.
        starts_ahead: Whether a second pair starts with the first.

    Raises:
        PairedError: If the ref's files cannot be written, or another Python is not fit.
    """

    def __init__(self, config: pytest.Config, target: Target, starts_ahead: bool = False) -> None:
        self.coordinator_cores, self.cores = split_cores()
        self._config, self._starts_ahead = config, starts_ahead
        self._pairs: dict[tuple[bool, int], ProcessPair] = {}
        self._cleanup = Cleanup()
        try:
            self.versions = find_versions(config, target, self._cleanup.folder)
        except BaseException:
            self._cleanup.close()
            raise
        self._order = [True, False]  # is the working tree's, for each process of a pair
        random.SystemRandom().shuffle(self._order)

    def key(self, item: pytest.Item) -> str:
        """Return the node key of a test in both versions."""
        return node_key(item, self.versions.tree.root)

    def pair(self, clustered: bool, items: Sequence[pytest.Item], n: int = 0) -> ProcessPair:
        """
        Return the pair of the test before, or a new one if there is none or a process has ended.

        Args:
            clustered: True for tests with autocluster=True.
            items: All tests that run in the pair.
            n: Number of the pair among those of a test, from 0.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        pair = self._pairs.get((clustered, n))
        if pair is None or not pair.is_whole:
            if pair is not None:
                pair.close()
            pair = self._pairs[clustered, n] = self._new_pair(clustered, items, n)
        return pair

    def end_pairs(self, clustered: bool, since: int) -> None:
        """End the pairs from this number on, as Ctrl-C does."""
        for key in [key for key in self._pairs if key[0] == clustered and key[1] >= since]:
            self._pairs.pop(key).interrupt()

    def _new_pair(self, clustered: bool, items: Sequence[pytest.Item], n: int) -> ProcessPair:
        """Start a pair and await it; the first one together with the second."""
        first = self._start(clustered, items, n, self.cores)
        if n > 0 or not self._starts_ahead or (clustered, 1) in self._pairs:
            return first.ready()
        with first.killed_on_error():
            second = self._start(clustered, items, 1, self._cores_ahead())
        with ExitStack() as unless_ready:
            unless_ready.callback(first.kill)
            unless_ready.callback(second.kill)
            pair = first.ready()
            with suppress(PairedError):  # it shows again where the second pair is wanted
                self._pairs[clustered, 1] = second.ready()
                for process in self._pairs[clustered, 1].processes:
                    process.move_to(self.cores)
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
    ) -> _StartingPair:
        """
        Start two processes that collect the files of some tests at the same time.

        The first pair starts in random order, each later one in reverse. Of two processes of the
        same code, the one that started well before the other was 0.3 % slower (22 pairs of either
        order). So a second pair does not favour the version that the first one did.

        Args:
            clustered: True for tests with autocluster=True.
            items: The tests.
            n: Number of the pair among those of a test.
            cores: Cores that the processes start on; empty for any.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        root = self.versions.tree.root
        files = sorted({Path(os.path.relpath(item.path, root)).as_posix() for item in items})
        self._order.reverse()
        starting = _StartingPair()
        with starting.killed_on_error():
            for is_tree in self._order:
                run = pytest_run(self._config, self.versions, is_tree, files, clustered, n == 0)
                starting.start(is_tree, replace(run, cores=cores), self._cleanup)
        return starting

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
        for pair in self._pairs.values():
            pair.interrupt()
        self._pairs.clear()

    def close(self) -> None:
        """End all processes in order, or else at once, and remove the ref's files."""
        try:
            for pair in self._pairs.values():
                pair.close()
        finally:
            self._cleanup.close()


class _StartingPair:
    """Two processes that start, and collect at the same time."""

    def __init__(self) -> None:
        self._started: dict[bool, ChildProcess] = {}
        self._why = ""

    def start(self, is_tree: bool, run: PytestRun, cleanup: Cleanup) -> None:
        """
        Start the process of a version; that of the ref may fail.

        Args:
            is_tree: True for the working tree.
            run: How its process is started.
            cleanup: Ends it if this process cannot.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        try:
            self._started[is_tree] = start_pytest(run, cleanup)
        except PairedError as error:
            if is_tree:
                raise
            self._why = str(error)

    def ready(self) -> ProcessPair:
        """
        Return the pair when both have collected.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        with self.killed_on_error():
            ours = self._started[True]
            ours.await_collected()
            return ProcessPair(ours, self._ref())

    def kill(self) -> None:
        """End the processes at once."""
        for process in self._started.values():
            process.kill()

    @contextmanager
    def killed_on_error(self) -> Iterator[None]:
        """End the processes at once if the context fails, as by a limit of time or Ctrl-C."""
        try:
            with naming_awaited(self._started.values()):
                yield
        except BaseException:
            self.kill()
            raise

    def _ref(self) -> ChildProcess | Unknown:
        """Return the ref's process after it has collected, or why there is none."""
        ref = self._started.get(False)
        if ref is None:
            return Unknown(self._why)
        try:
            ref.await_collected()
        except PairedError as error:
            return Unknown(str(error))
        return ref
