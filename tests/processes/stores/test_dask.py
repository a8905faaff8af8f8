"""Many traces on a cluster of Dask with two worker processes."""

import os
import signal
import threading

import pytest
from helpers.fleets import different_traces, stored, tables_of, waiting_trace, write_traces

from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import workers
from pytest_tfperf.stores.traces import analyze_traces

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("processes"),
    pytest.mark.filterwarnings("default"),  # of Dask and Tornado
]


DEADLY = """
import os, signal

from pytest_tfperf.stores.trace_files import TraceFile

def deadly(read):
    def read_or_die(self):
        if os.path.basename(self.name).startswith("killer"):
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self)

    return read_or_die

TraceFile.read = deadly(TraceFile.read)
"""
"""Lets a trace kill the worker that takes it, as one does whose analysis needs all memory."""


@pytest.fixture
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
    ) as found:
        yield found


def address(cluster):
    return cluster.scheduler_address.replace("tcp://", "dask://")


def test_traces_on_two_workers_by_the_command(cluster, tmp_path, capsys):
    contents = different_traces(6) | {"bad": b"nonsense"}
    glob, store = write_traces(tmp_path / "traces", contents), tmp_path / "store"
    command = ["analyze", glob, "--into", str(store), "--executor", address(cluster)]
    assert main(command) == 2
    shown = capsys.readouterr()
    assert shown.out == "7 traces: 6 analysed, 1 cannot be read\n"
    assert "bad.xplane.pb: is not an XSpace trace" in shown.err
    assert stored(store, "metrics") == tables_of(different_traces(6).values())
    assert main(command) == 2
    assert "7 traces: 0 analysed, 6 stored before, 1 cannot be read" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_worker_is_killed_in_the_middle(cluster, tmp_path):
    contents = different_traces(60)
    glob, store = write_traces(tmp_path / "traces", contents), tmp_path / "store"
    killed = []

    def kill_one(n_done, n_traces):
        if not killed and n_done >= 5:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    found = analyze_traces(glob, str(store), executor=address(cluster), progress=kill_one)
    assert killed
    assert found.n_traces == 60
    # Dask gives what it had to the other worker, or loses a result that was on its way
    assert len(found.errors) <= 4, found.errors
    assert analyze_traces(glob, str(store), executor=address(cluster)).errors == ()
    assert stored(store, "metrics") == stored(store, "steps") == tables_of(contents.values())
    assert len(stored(store, "traces")) == 60 + len(found.errors)


@pytest.mark.nightly
def test_two_runs_into_one_store_at_once(cluster, tmp_path):
    contents = different_traces(12)
    glob, store = write_traces(tmp_path / "traces", contents), tmp_path / "store"
    found = []

    def analyse():
        found.append(analyze_traces(glob, str(store), executor=address(cluster)))

    runs = [threading.Thread(target=analyse) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [one.errors for one in found] == [(), ()]
    assert stored(store, "metrics") == tables_of(contents.values())


@pytest.mark.nightly
def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(workers, "_WORKER_S", 1)
    glob = write_traces(tmp_path, different_traces(1))
    with (
        LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty,
        pytest.raises(StoreError, match="has had no worker for 1 s"),
    ):
        analyze_traces(glob, str(tmp_path / "store"), executor=address(empty))


@pytest.fixture
def deadly_cluster(tmp_path):
    """Workers that killers kill, and that start again, as containers do."""
    from distributed import LocalCluster

    (tmp_path / "deadly.py").write_text(DEADLY)
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
        preload=[str(tmp_path / "deadly.py")],
    ) as found:
        found.adapt(minimum=2, maximum=2, interval="500ms")
        yield found


@pytest.mark.nightly
@pytest.mark.parametrize("n", [3, 40])
def test_a_trace_that_kills_its_workers_costs_those_that_they_had(deadly_cluster, tmp_path, n):
    """Dask counts a death for each trace that a worker has, also for those that wait for the killer."""
    contents = different_traces(n) | {"z": waiting_trace(3)}
    glob = write_traces(tmp_path / "traces", contents | {"killer": b""})
    store, killer = tmp_path / "store", f"{tmp_path}/traces/killer.xplane.pb"
    found = analyze_traces(glob, str(store), executor=address(deadly_cluster))
    assert {why for _, why in found.errors} == {"its worker died; the next run tries it again"}
    assert killer in {name for name, _ in found.errors}
    assert len(found.errors) <= 4  # two workers have two traces each
    assert len(stored(store, "metrics")) == len(contents) + 1 - len(found.errors)
    (tmp_path / "traces/killer.xplane.pb").unlink()
    assert analyze_traces(glob, str(store), executor=address(deadly_cluster)).errors == ()
    assert stored(store, "metrics") == tables_of(contents.values())


@pytest.mark.nightly
def test_a_cluster_that_loses_its_workers_for_good(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_WORKER_S", 2)
    glob = write_traces(tmp_path / "traces", different_traces(60))
    store = tmp_path / "store"

    def lose_all(n_done, n_traces):
        if n_done == 5:
            cluster.scale(0)

    with pytest.raises(StoreError, match="has had no worker for 2 s; what was analysed is stored"):
        analyze_traces(glob, str(store), executor=address(cluster), progress=lose_all)
    assert 5 <= len(stored(store, "metrics")) < 60
