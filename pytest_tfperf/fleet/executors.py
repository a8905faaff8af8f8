"""Executors that analyse traces: local processes, Dask's workers, or one that is given."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pytest_tfperf.errors import StoreError
from pytest_tfperf.machine.cores import usable_cores

T = TypeVar("T")
DASK = "dask://"
"""Begin of the address of a Dask scheduler."""
_CONNECT_S = 5
"""Seconds that a scheduler has to answer."""
_WORKER_S = 120
"""Seconds that a cluster without workers has to get one: one is started, or starts again."""
_MOST_PROCESSES = 1024


class LocalProcesses(Executor):
    """
    Processes of this machine; the death of one costs only the call that it had.

    Args:
        n_processes: The number of processes; each starts with its first call.
    """

    def __init__(self, n_processes: int) -> None:
        self._threads = ThreadPoolExecutor(n_processes)
        self._pools: queue.SimpleQueue[ProcessPoolExecutor | None] = queue.SimpleQueue()
        self._n_processes = n_processes
        for _ in range(n_processes):
            self._pools.put(None)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in one of the processes; `BrokenProcessPool` if that dies."""
        return self._threads.submit(self._run, fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """
        End the processes.

        Args:
            wait: True to return when they have ended.
            cancel_futures: True to begin no call that waits.
        """
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for _ in range(self._n_processes if wait else 0):
            pool = self._pools.get()
            if pool is not None:
                pool.shutdown()

    def _run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        pool = self._pools.get()
        try:
            if pool is None:
                pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            return pool.submit(fn, *args, **kwargs).result()
        except BrokenProcessPool:
            pool = None
            raise
        finally:
            self._pools.put(pool)


class DaskWorkers(Executor):
    """
    The workers of a Dask cluster, which may come and go.

    Args:
        client: The client of the cluster.
        address: Address of the scheduler, for messages.
    """

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._pool = client.get_executor(pure=False)
        self._last_seen_s = time.monotonic()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in one of the workers; `KilledWorker` of Dask if several die with it."""
        future: Future[T] = self._pool.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """
        Take no calls any more.

        Args:
            wait: True to return when all calls have ended.
            cancel_futures: True to begin no call that waits; Dask then waits for none.
        """
        self._pool.shutdown(wait=wait and not cancel_futures)

    def check(self) -> None:
        """
        Check that there are workers; a cluster may need some time to start one.

        Raises:
            StoreError: If there has been none for too long.
        """
        now_s = time.monotonic()
        with suppress(OSError):  # of a scheduler that has gone; its calls are cancelled
            if self._client.scheduler_info()["workers"]:
                self._last_seen_s = now_s
        if now_s - self._last_seen_s > _WORKER_S:
            raise StoreError(
                f"the Dask scheduler at {DASK}{self._address} has had no worker for {_WORKER_S} s; "
                "what was analysed is stored, so the same command does the rest"
            )


@contextmanager
def opened(
    executor: Executor | str | int | None, n_tasks: int, in_process: bool
) -> Iterator[Executor]:
    """
    Open an executor, and end it unless it was given.

    Args:
        executor: An executor, `dask://host:port`, a number of processes, or None for one a core.
        n_tasks: Number of tasks; there are no more processes.
        in_process: True if only this process reaches the traces or the store.

    Raises:
        StoreError: If it is not one of these, or no scheduler answers.
    """
    if isinstance(executor, Executor):
        yield executor
        return
    if isinstance(executor, str) and executor.startswith(DASK):
        with _dask(executor.removeprefix(DASK)) as pool:
            yield pool
        return
    n_processes = min(_number(executor), max(n_tasks, 1))
    own: Executor = ThreadPoolExecutor(1) if in_process else LocalProcesses(n_processes)
    try:
        yield own
    finally:
        own.shutdown(cancel_futures=True)


def _number(executor: str | int | None) -> int:
    """Return the number of processes that are asked for."""
    if executor is None:
        return len(usable_cores())
    text = str(executor)
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PROCESSES:
        raise StoreError(f"executor {text!r} is neither a number of processes nor {DASK}host:8786")
    return int(text)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise StoreError(
            f"Dask needs {error.name}: install it with pip install 'pytest-tfperf[dask]'"
        ) from error
    try:
        client = Client(f"tcp://{address}", timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"no Dask scheduler answers at {DASK}{address} within {_CONNECT_S} s; "
            "is it running, and can its port be reached from here?"
        ) from error
    workers = DaskWorkers(client, address)
    try:
        yield workers
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
        client.close()
