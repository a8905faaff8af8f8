"""The executors that users name."""

from types import SimpleNamespace

import pytest
from helpers.refusals import refusal

from pytest_tfperf.errors import StoreError
from pytest_tfperf.fleet import executors


def opened(text):
    with executors.opened(text, 1, in_process=False):
        pass


def test_what_is_no_executor_is_refused():
    for text in ["0", "-1", "many", "1025", "tcp://host:8786", ""]:
        said = refusal(StoreError, opened, text)
        assert "neither a number of processes nor dask://host:8786" in said, text


def test_an_executor_that_is_given_stays_open():
    with executors.LocalProcesses(1) as given:
        with executors.opened(given, 1, in_process=False) as pool:
            assert pool is given
        assert given._threads.submit(abs, -1).result() == 1


@pytest.mark.full  # needs the extra [dask]
@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_is_not_there_is_named_soon(monkeypatch):
    monkeypatch.setattr(executors, "_CONNECT_S", 0.2)
    with (
        pytest.raises(StoreError, match=r"no Dask scheduler answers at dask://127.0.0.1:9 within"),
        executors.opened("dask://127.0.0.1:9", 1, in_process=False),
    ):
        pass


@pytest.fixture
def at(monkeypatch):
    """A function that sets the time in seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(executors.time, "monotonic", lambda: clock.now)
    return lambda seconds: setattr(clock, "now", float(seconds))


def test_dask_may_be_without_workers_for_two_minutes(at):
    workers = {"tcp://a": {}}
    client = SimpleNamespace(
        get_executor=lambda pure: None, scheduler_info=lambda: {"workers": workers}
    )
    cluster = executors.DaskWorkers(client, "host:8786")
    at(1000)
    cluster.check()
    workers.clear()
    at(1120)
    cluster.check()
    at(1120.1)
    with pytest.raises(StoreError) as error:
        cluster.check()
    assert str(error.value) == (
        "the Dask scheduler at dask://host:8786 has had no worker for 120 s; what was analysed is "
        "stored, so the same command does the rest"
    )
    workers["tcp://b"] = {}
    cluster.check()
    at(1240.1)
    workers.clear()
    cluster.check()


def test_a_scheduler_that_does_not_answer_has_no_workers(at):
    def refuse():
        raise OSError("closed")

    client = SimpleNamespace(get_executor=lambda pure: None, scheduler_info=refuse)
    cluster = executors.DaskWorkers(client, "host:8786")
    at(120)
    cluster.check()
    at(121)
    with pytest.raises(StoreError, match="has had no worker for 120 s"):
        cluster.check()
