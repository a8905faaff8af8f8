"""The executors that users name."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from helpers.refusals import refusal

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import workers


def opened(text):
    with workers.opened(text, 1, in_process=False):
        pass


def test_what_is_no_executor_is_refused():
    for text in ["0", "-1", "many", "1025", "tcp://host:8786", ""]:
        said = refusal(StoreError, opened, text)
        assert "neither a number of processes nor dask://host:8786" in said, text


def test_an_executor_that_is_given_stays_open():
    with ThreadPoolExecutor(1) as given:
        with workers.opened(given, 1, in_process=False) as pool:
            assert pool is given
        assert given.submit(abs, -1).result() == 1


@pytest.mark.full  # needs the extra [dask]
@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_is_not_there_is_named_soon(monkeypatch):
    monkeypatch.setattr(workers, "_CONNECT_S", 0.2)
    with (
        pytest.raises(StoreError, match=r"no Dask scheduler answers at dask://127.0.0.1:9 within"),
        workers.opened("dask://127.0.0.1:9", 1, in_process=False),
    ):
        pass


@pytest.fixture
def at(monkeypatch):
    """A function that sets the time in seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(workers.time, "monotonic", lambda: clock.now)
    return lambda seconds: setattr(clock, "now", float(seconds))


def test_dask_may_be_without_workers_for_two_minutes(at):
    threads = {"tcp://a": 500}
    client = SimpleNamespace(get_executor=lambda pure: None, nthreads=lambda: threads)
    cluster = workers.DaskWorkers(client, "host:8786")
    at(1000)
    assert cluster.n_at_once() == 1000
    threads.clear()
    at(1000.5)
    assert cluster.n_at_once() == 1000  # it looks once in a second
    at(1120)
    assert cluster.n_at_once() == 512
    at(1121.5)
    with pytest.raises(StoreError) as error:
        cluster.n_at_once()
    assert str(error.value) == (
        "the Dask scheduler at dask://host:8786 has had no worker for 120 s; what was analysed is "
        "stored, so the same command does the rest"
    )
    threads["tcp://b"] = 1
    at(1240)
    assert cluster.n_at_once() == 512


def test_a_scheduler_that_does_not_answer_has_no_workers(at):
    def refuse():
        raise OSError("closed")

    client = SimpleNamespace(get_executor=lambda pure: None, nthreads=refuse)
    cluster = workers.DaskWorkers(client, "host:8786")
    at(120)
    cluster.n_at_once()
    at(121)
    with pytest.raises(StoreError, match="has had no worker for 120 s"):
        cluster.n_at_once()


def test_an_executor_has_few_calls_at_once(monkeypatch):
    monkeypatch.setattr(workers, "_AT_ONCE", 3)
    waiting, numbers = [], []

    class Lazy(Executor):
        """Ends a call when it has three, and all with the last item."""

        def submit(self, fn, /, item):
            future = Future()
            waiting.append((future, item))
            numbers.append(len(waiting))
            for _ in range((len(waiting) == 3) * (3 if item == 99 else 1)):
                done, value = waiting.pop(0)
                done.set_result(fn(value))
            return future

    found = dict(workers.results(Lazy(), lambda n: n + 1, range(100)))
    assert found == {n: n + 1 for n in range(100)}
    assert max(numbers) == 3
