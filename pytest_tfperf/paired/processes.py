"""The processes of a paired run: pairs that all tests share, and fresh pairs where wanted."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.command import (
    PytestRun,
    invocation_arguments,
    same_run,
    shows_output,
    start_pytest,
)
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.reports import node_key
from pytest_tfperf.child.xla_flags import autoclustering_environment
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import split_cores
from pytest_tfperf.paired import child_extension
from pytest_tfperf.paired.ref_files import write_tree
from pytest_tfperf.paired.worktree import Tree, mapped, mapped_argument
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
        ref: The git ref, as typed.
        starts_ahead: Whether a second pair starts with the first.

    Raises:
        PairedError: If the ref's files cannot be written.
    """

    def __init__(self, config: pytest.Config, ref: str, starts_ahead: bool = False) -> None:
        self.coordinator_cores, self.cores = split_cores()
        self._config, self._starts_ahead = config, starts_ahead
        self._pairs: dict[tuple[bool, int], ProcessPair] = {}
        self._cleanup = Cleanup()
        try:
            self.tree = write_tree(ref, Path(config.invocation_params.dir), self._cleanup.folder)
        except BaseException:
            self._cleanup.close()
            raise
        self._order = [self.tree, replace(self.tree, path=self.tree.root)]
        random.SystemRandom().shuffle(self._order)

    def key(self, item: pytest.Item) -> str:
        """Return the node key of a test in both versions."""
        return node_key(item, self.tree.root)

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
        with ExitStack() as unless_ready:
            unless_ready.callback(first.kill)
            second = self._start(clustered, items, 1, self._cores_ahead())
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
        paths = {Path(os.path.relpath(item.path, self.tree.root)).as_posix() for item in items}
        self._order.reverse()
        starting = _StartingPair(self.tree)
        with starting.killed_on_error():
            for tree in self._order:
                run = self._run(tree, clustered, sorted(paths), n == 0)
                starting.start(tree, replace(run, cores=cores), self._cleanup)
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

    def _run(self, tree: Tree, clustered: bool, files: Sequence[str], is_first: bool) -> PytestRun:
        """
        Return how the process of a version is started.

        Args:
            tree: The version, with its folder as `path`.
            clustered: True for tests with autocluster=True.
            files: Test files to collect.
            is_first: True for the first pair, whose output and traces are the user's.
        """
        is_tree = tree.path == tree.root
        folder = mapped(Path(self._config.invocation_params.dir), tree)
        folder.mkdir(parents=True, exist_ok=True)
        label = "the working tree's process" if is_tree else f"the process on {tree.ref}"
        run = same_run(self._config, label, tree.path, files)
        return replace(
            run,
            path=[_mapped_entry(entry, tree) for entry in run.path],
            arguments=[
                mapped_argument(argument, tree) for argument in invocation_arguments(self._config)
            ],
            folder=folder,
            environment=_environment(run.environment, tree, clustered),
            shows_output=is_tree and is_first and shows_output(self._config),
            extension=(
                child_extension.MODULE,
                child_extension.extension_data(self.tree, is_first),
            ),
        )


@contextmanager
def naming_awaited(processes: Collection[ChildProcess]) -> Iterator[None]:
    """Add the process that was waited for to the message of a time limit within the context."""
    try:
        yield
    except pytest.fail.Exception as error:  # plugins for time limits raise it
        awaited = [one for one in processes if one.is_awaited and not one.has_ended]
        lines = "".join(f"\n  {one.label} had not answered{one.output()}" for one in awaited)
        raise pytest.fail.Exception(f"{error}{lines}", pytrace=False) from None


class _StartingPair:
    """Two processes that start, and collect at the same time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._started: dict[Path, ChildProcess] = {}
        self._why = ""

    def start(self, tree: Tree, run: PytestRun, cleanup: Cleanup) -> None:
        """
        Start the process of a version; that of the ref may fail.

        Args:
            tree: The version, with its folder as `path`.
            run: How its process is started.
            cleanup: Ends it if this process cannot.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        try:
            self._started[tree.path] = start_pytest(run, cleanup)
        except PairedError as error:
            if tree.path == tree.root:
                raise
            self._why = str(error)

    def ready(self) -> ProcessPair:
        """
        Return the pair when both have collected.

        Raises:
            PairedError: If the working tree's process cannot start.
        """
        with self.killed_on_error():
            ours = self._started[self._tree.root]
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
        ref = self._started.get(self._tree.path)
        if ref is None:
            return Unknown(self._why)
        try:
            ref.await_collected()
        except PairedError as error:
            return Unknown(str(error))
        return ref


def _environment(same: Mapping[str, str], tree: Tree, clustered: bool) -> Mapping[str, str]:
    """Return the environment of a version, with Python's paths mapped to its folder."""
    environment = {**same, "PWD": str(mapped(Path.cwd(), tree))}
    entries = [entry for entry in same.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(_mapped_entry(entry, tree) for entry in entries)
    return autoclustering_environment(environment) if clustered else environment


def _mapped_entry(entry: str, tree: Tree) -> str:
    """Map an entry of sys.path; the empty one is the working directory, which is mapped anyway."""
    return str(mapped(entry, tree)) if entry else ""
