"""Give traces to workers, and try those again whose worker died."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future

from pytest_tfperf.errors import FleetError
from pytest_tfperf.fleet.fleet_store import FleetStore
from pytest_tfperf.fleet.trace_files import TraceFile, reason
from pytest_tfperf.fleet.worker_task import Outcome, analyse_into
from pytest_tfperf.text import plural

MOST_RETRIES = 2
"""Times that a trace is given to another worker after one died; Dask counts itself."""
_Finished = tuple[TraceFile, "Future[Outcome]"]


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

    def outcomes(self, traces: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Outcome]]:
        """
        Yield the outcome of each trace, as they come.

        Raises:
            FleetError: If the store cannot be written, or the workers cannot work.
        """
        try:
            for trace in traces:
                self._submit(trace)
            n_left = len(traces)
            while n_left:
                trace, future = self._finished.get()
                self._futures.discard(future)
                outcome = self._outcome(trace, future)
                if outcome is None:
                    self._submit(trace)
                    continue
                n_left -= 1
                yield trace, outcome
        finally:
            for future in list(self._futures):
                future.cancel()

    def _submit(self, trace: TraceFile) -> None:
        try:
            future = self._executor.submit(analyse_into, trace, self._store)
        except RuntimeError as error:  # BrokenExecutor too
            raise FleetError(
                f"the executor takes no traces any more: {reason(error)}; what was analysed is "
                f"stored, so the same command does the rest"
            ) from error
        self._futures.add(future)
        future.add_done_callback(lambda done: self._finished.put((trace, done)))

    def _outcome(self, trace: TraceFile, future: Future[Outcome]) -> Outcome | None:
        """Return the outcome of a trace; None if it is to be tried again."""
        try:
            return future.result()
        except FleetError:
            raise
        except BrokenExecutor:
            n_deaths = self._n_deaths[trace.name] = self._n_deaths.get(trace.name, 0) + 1
            if n_deaths <= MOST_RETRIES:
                return None
            return self._lost(trace, f"{plural(n_deaths, 'worker')} died while analysing it")
        except CancelledError as error:
            raise FleetError(
                "the connection to the workers is lost; what was analysed is stored, so the same "
                "command does the rest"
            ) from error
        except ImportError as error:
            raise FleetError(
                f"the workers cannot import {error.name}: install the same version of "
                "pytest-tfperf[history] there"
            ) from error
        except Exception as error:  # Dask's KilledWorker, after the retries of its scheduler
            return self._lost(trace, f"the workers failed: {reason(error)}")

    def _lost(self, trace: TraceFile, why: str) -> Outcome:
        self._store.add_unread(trace, why)
        return Outcome(why=why)


Progress = Callable[[int, int], None]
"""Called with the number of traces that are done, and that of all."""
