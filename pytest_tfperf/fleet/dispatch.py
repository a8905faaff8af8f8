"""Give traces to workers, and try those again whose worker died."""

from __future__ import annotations

import enum
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future

from pytest_tfperf.errors import StoreError
from pytest_tfperf.fleet.executors import DaskWorkers
from pytest_tfperf.fleet.fleet_store import FleetStore
from pytest_tfperf.fleet.trace_files import TraceFile
from pytest_tfperf.fleet.worker_task import Outcome, analyse_into
from pytest_tfperf.stores.objects import reason
from pytest_tfperf.text import plural

_LOOK_S = 1.0
"""Seconds between two looks whether there are workers, while no call ends."""
MOST_RETRIES = 2
"""Times that a trace is given to another worker after one died; Dask counts itself."""
Progress = Callable[[int, int], None]
"""Called with the number of traces that are done, and that of all."""
_Finished = tuple[TraceFile, "Future[Outcome]"]


class _Again(enum.Enum):
    """The time at which a trace is tried again."""

    NOW = enum.auto()
    ALONE = enum.auto()
    """When no worker has another trace, since a death counts for all that a Dask worker has."""


class Dispatcher:
    """
    Traces that workers of an executor analyse.

    Args:
        executor: The executor.
        store: The store of the results.
    """

    def __init__(self, executor: Executor, store: FleetStore) -> None:
        self._executor, self._store = executor, store
        self._finished: queue.SimpleQueue[_Finished] = queue.SimpleQueue()
        self._futures: set[Future[Outcome]] = set()
        self._n_deaths: dict[str, int] = {}
        self._suspects: list[TraceFile] = []
        self._alone: TraceFile | None = None

    def outcomes(self, traces: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Outcome]]:
        """
        Yield the outcome of each trace, as they come.

        Raises:
            StoreError: If the store cannot be written, or the workers cannot work.
        """
        try:
            yield from self._outcomes(traces)
            while self._suspects:
                yield from self._again_alone(self._suspects.pop(0))
        finally:
            for future in list(self._futures):
                future.cancel()

    def _again_alone(self, trace: TraceFile) -> Iterator[tuple[TraceFile, Outcome]]:
        """Yield the outcome of a trace that no other is analysed beside."""
        self._alone = trace
        try:
            yield from self._outcomes([trace])
        except StoreError:  # it may have cost the last worker
            self._died(trace, self._n_deaths[trace.name])
            raise

    def _outcomes(self, traces: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Outcome]]:
        """Yield the outcome of each trace but those of `_suspects`."""
        for trace in traces:
            self._submit(trace)
        n_left = len(traces)
        while n_left:
            trace, future = self._next()
            self._futures.discard(future)
            outcome = self._outcome(trace, future)
            if outcome is _Again.NOW:
                self._submit(trace)
                continue
            n_left -= 1
            if outcome is _Again.ALONE:
                self._suspects.append(trace)
            else:
                yield trace, outcome

    def _next(self) -> _Finished:
        """
        Wait for the end of a call.

        Raises:
            StoreError: If Dask has no workers any more.
        """
        while True:
            try:
                return self._finished.get(timeout=_LOOK_S)
            except queue.Empty:
                if isinstance(self._executor, DaskWorkers):
                    self._executor.check()

    def _submit(self, trace: TraceFile) -> None:
        try:
            future = self._executor.submit(analyse_into, trace, self._store)
        except RuntimeError as error:  # BrokenExecutor too
            raise StoreError(
                f"the executor takes no traces any more: {reason(error)}; what was analysed is "
                f"stored, so the same command does the rest"
            ) from error
        self._futures.add(future)
        future.add_done_callback(lambda done: self._finished.put((trace, done)))

    def _outcome(self, trace: TraceFile, future: Future[Outcome]) -> Outcome | _Again:
        """Return the outcome of a trace, or when it is to be tried again."""
        try:
            return future.result()
        except StoreError:
            raise
        except BrokenExecutor:
            n_deaths = self._n_deaths[trace.name] = self._n_deaths.get(trace.name, 0) + 1
            if n_deaths <= MOST_RETRIES:
                return _Again.NOW
            return self._died(trace, n_deaths)
        except CancelledError as error:
            raise StoreError(
                "the connection to the workers is lost; what was analysed is stored, so the same "
                "command does the rest"
            ) from error
        except ImportError as error:
            raise StoreError(
                f"the workers cannot import {error.name}: install the same version of "
                "pytest-tfperf[history] there"
            ) from error
        except Exception as error:
            n_retries = getattr(error, "allowed_failures", None)  # of Dask's KilledWorker
            if n_retries is None:
                return self._lost(trace, f"the workers failed: {reason(error)}")
            self._n_deaths[trace.name] = n_retries + 1
            return self._died(trace, n_retries + 1) if trace is self._alone else _Again.ALONE

    def _died(self, trace: TraceFile, n_deaths: int) -> Outcome:
        return self._lost(trace, f"{plural(n_deaths, 'worker')} died while analysing it")

    def _lost(self, trace: TraceFile, why: str) -> Outcome:
        self._store.add_unread(trace, why)
        return Outcome(why=why)
