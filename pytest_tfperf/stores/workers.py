"""
Workers that call a function for many items: local processes, Dask's, or an executor that is given.

A worker that dies costs the items that it had, and no other.
"""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar

from pytest_tfperf.errors import StoreError
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.stores.objects import reason

I = TypeVar("I")  # noqa: E741
T = TypeVar("T")
DASK = "dask://"
"""Begin of the address of a Dask scheduler."""
_CONNECT_S = 5
"""Seconds that a scheduler has to answer."""
_WORKER_S = 120
"""Seconds that a cluster without workers has to get one: one is started, or starts again."""
_LOOK_S = 1.0
"""Seconds between two looks at a cluster."""
_MOST_PROCESSES = 1024
_AT_ONCE = 512
"""Calls that an executor has at once; a cluster that grows with its queue needs some that wait."""
_REST = "what was analysed is stored, so the same command does the rest"


def results(
    executor: Executor, call: Callable[..., T], items: Iterable[I], *more: object
) -> Iterator[tuple[I, T | StoreError]]:
    """Yield items with the results of their calls as they come, or their worker's error."""
    left, futures = iter(items), dict[Future[T], I]()
    try:
        while True:
            n_free = max(_n_at_once(executor) - len(futures), 0)
            for item in islice(left, n_free):
                futures[_submitted(executor, call, item, *more)] = item
            if not futures:
                return
            for future in wait(futures, _LOOK_S, FIRST_COMPLETED).done:
                result = _result(future)
                yield futures.pop(future), result
    finally:
        for future in futures:
            future.cancel()


def _n_at_once(executor: Executor) -> int:
    return executor.n_at_once() if isinstance(executor, DaskWorkers) else _AT_ONCE


def _submitted(executor: Executor, call: Callable[..., T], *arguments: object) -> Future[T]:
    try:
        return executor.submit(call, *arguments)
    except RuntimeError as error:  # BrokenExecutor too
        raise StoreError(
            f"the executor takes no traces any more: {reason(error)}; {_REST}"
        ) from error


def _result(future: Future[T]) -> T | StoreError:
    try:
        return future.result()
    except StoreError:
        raise
    except CancelledError as error:
        raise StoreError(f"the connection to the workers is lost; {_REST}") from error
    except ImportError as error:
        raise StoreError(
            f"the workers cannot import {error.name}: install the same version of "
            "pytest-tfperf[history] there"
        ) from error
    except Exception as error:
        # Dask's KilledWorker is known by its name, since Dask may not be installed
        if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
            return StoreError("its worker died; the next run tries it again")
        return StoreError(f"its worker failed: {reason(error)}")


class LocalProcesses(Executor):
    """Processes of this machine, each from its first call; a death costs only the call it had."""

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
        """End the processes."""
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
    """The workers of a Dask cluster, which may come and go; messages have its address."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._pool = client.get_executor(pure=False)
        self._looked_s, self._n_threads = float("-inf"), 0
        self._last_seen_s = time.monotonic()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in one of the workers; `KilledWorker` of Dask if several die with it."""
        future: Future[T] = self._pool.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no calls any more; Dask waits for none that is cancelled."""
        self._pool.shutdown(wait=wait and not cancel_futures)

    def n_at_once(self) -> int:
        """Return the number of calls that keep all workers busy."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s, self._n_threads = now_s, 0
            with suppress(OSError):  # of a scheduler that has gone; its calls are cancelled
                self._n_threads = sum(self._client.nthreads().values())
        if self._n_threads:
            self._last_seen_s = now_s
        elif now_s - self._last_seen_s > _WORKER_S:
            raise StoreError(
                f"the Dask scheduler at {DASK}{self._address} has had no worker for {_WORKER_S} s; "
                f"{_REST}"
            )
        return max(2 * self._n_threads, _AT_ONCE)


@contextmanager
def opened(
    executor: Executor | str | int | None, n_tasks: int, in_process: bool
) -> Iterator[Executor]:
    """
    Open an executor of at most `n_tasks` processes, and end it unless it was given.

    `in_process` says that only this process reaches the traces or the store.
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
