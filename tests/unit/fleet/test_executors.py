"""The executors that users name."""

import pytest

from pytest_tfperf.errors import FleetError
from pytest_tfperf.fleet import executors


@pytest.mark.parametrize("text", ["0", "-1", "many", "1025", "tcp://host:8786", ""])
def test_what_is_no_executor_is_refused(text):
    with (
        pytest.raises(FleetError, match="neither a number of processes nor dask://host:8786"),
        executors.opened(text, 1, in_process=False),
    ):
        pass


def test_an_executor_that_is_given_stays_open():
    with executors.LocalProcesses(1) as given:
        with executors.opened(given, 1, in_process=False) as pool:
            assert pool is given
        assert given._threads.submit(abs, -1).result() == 1


@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_is_not_there_is_named_soon(monkeypatch):
    monkeypatch.setattr(executors, "_CONNECT_S", 0.2)
    with (
        pytest.raises(FleetError, match=r"no Dask scheduler answers at dask://127.0.0.1:9 within"),
        executors.opened("dask://127.0.0.1:9", 1, in_process=False),
    ):
        pass
