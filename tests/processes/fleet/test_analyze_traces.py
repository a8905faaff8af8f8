"""Many traces of each kind of file system, by threads and processes: nothing lost, nothing twice."""

import hashlib
import multiprocessing
import os
import signal
import uuid
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import duckdb
import fsspec
import pytest
from helpers.fleets import different_traces, stored, tables_of, waiting_trace, write_traces
from helpers.histories import bucket

from pytest_tfperf.errors import StoreError
from pytest_tfperf.fleet import analyze_traces, trace_files
from pytest_tfperf.fleet.executors import LocalProcesses
from pytest_tfperf.fleet.fleet_store import FleetStore
from pytest_tfperf.fleet.trace_files import TraceFile

pytestmark = pytest.mark.full


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def no_reading(monkeypatch):
    """A function after which no trace can be read."""

    def forbid():
        def read(self):
            raise AssertionError(f"{self.name} was read")

        monkeypatch.setattr(TraceFile, "read", read)

    return forbid


class Mortal(ThreadPoolExecutor):
    """Workers of which one dies each time that it analyses a trace, as often as its name says."""

    def __init__(self, deaths):
        super().__init__(2)
        self.deaths, self.calls = deaths, Counter()

    def submit(self, fn, /, *args, **kwargs):
        name = args[0].name.rpartition("/")[2].removesuffix(".xplane.pb")
        self.calls[name] += 1
        if self.calls[name] > self.deaths.get(name, 0):
            return super().submit(fn, *args, **kwargs)
        future = Future()
        future.set_exception(BrokenExecutor("it died"))
        return future


class Killed(Exception):
    """Stands for Dask's KilledWorker, of a trace that was on each of four workers that died."""

    allowed_failures = 3


class Deadly(ThreadPoolExecutor):
    """Workers that die of `killer`, the first time with the traces that they have besides."""

    def __init__(self, besides, ends=False):
        super().__init__(2)
        self.calls, self._besides, self._ends = [], besides, ends

    def submit(self, fn, /, *args, **kwargs):
        name = args[0].name.rpartition("/")[2].removesuffix(".xplane.pb")
        is_again = name in self.calls
        if is_again and self._ends:
            raise BrokenProcessPool("it ended")
        self.calls.append(name)
        if name != "killer" and (is_again or name not in self._besides):
            return super().submit(fn, *args, **kwargs)
        future = Future()
        future.set_exception(Killed("it died"))
        return future


def rows(store, kind, columns="*"):
    return duckdb.sql(f"SELECT {columns} FROM '{store}/{kind}-1/*.parquet' ORDER BY ALL").fetchall()


def test_each_trace_has_its_metrics_and_steps_by_its_content(tmp_path, threads):
    contents = {"a": waiting_trace(2), "b": waiting_trace(4), "c": waiting_trace(2)}
    store = tmp_path / "store"
    found = analyze_traces(
        write_traces(tmp_path / "traces", contents), str(store), executor=threads
    )
    assert (found.n_traces, found.n_analysed, found.errors) == (3, 2, ())
    assert stored(store, "metrics") == stored(store, "steps") == tables_of({*contents.values()})
    assert len(stored(store, "seen")) == 3
    bounds = duckdb.sql(
        f"SELECT value FROM '{store}/metrics-1/*.parquet' WHERE metric = 'input_bound' ORDER BY 1"
    ).fetchall()
    # the last of the steps lasts 9 ms, since none follows
    assert bounds == [(pytest.approx(6 / 29),), (pytest.approx(12 / 29),)]
    steps = rows(store, "steps", "step, name, period_ns, input_ns, start_ns")
    assert [row[:4] for row in steps[::2]] == [
        (0, "train 0", 10_000_000, 2_000_000),
        (1, "train 1", 10_000_000, 2_000_000),
        (2, "train 2", 9_000_000, 2_000_000),
    ]
    assert steps[2][4] - steps[0][4] == 10_000_000


def test_a_second_run_reads_only_what_changed(tmp_path, threads, no_reading):
    traces = tmp_path / "traces"
    glob = write_traces(traces, different_traces(4) | {"bad": b"nonsense"})
    store = str(tmp_path / "store")
    first = analyze_traces(glob, store, executor=threads)
    write_traces(traces, {"trace_001": waiting_trace(7)})
    assert analyze_traces(glob, store, executor=threads).n_analysed == 1
    no_reading()
    again = analyze_traces(glob, store, executor=threads)
    assert (again.n_traces, again.n_analysed) == (5, 0)
    [(name, why)] = again.errors
    assert again.errors == first.errors
    assert name.endswith("/bad.xplane.pb")
    assert why.startswith("is not an XSpace trace")
    assert rows(store, "errors", "metric, value, why") == [("", None, why)]


def test_a_trace_that_cannot_be_read_is_tried_again(tmp_path, threads, monkeypatch):
    glob, store = write_traces(tmp_path / "traces", different_traces(2)), tmp_path / "store"
    with monkeypatch.context() as patch:

        def read(self):
            raise PermissionError(13, "Permission denied")

        patch.setattr(TraceFile, "read", read)
        found = analyze_traces(glob, str(store), executor=threads)
    assert [why for _, why in found.errors] == ["cannot be read: Permission denied"] * 2
    assert len(stored(store, "errors")) == 2
    assert analyze_traces(glob, str(store), executor=threads).errors == ()
    assert len(stored(store, "metrics")) == 2


class TestWithoutFingerprint:
    """Traces of a file system that tells neither a time nor a checksum, as some web servers do."""

    @pytest.fixture(autouse=True)
    def _untold(self, monkeypatch):
        monkeypatch.setattr(trace_files, "_TIMES", ())
        monkeypatch.setattr(trace_files, "_SUMS", ())

    @pytest.fixture(params=["folder", "memory"])
    def fleet(self, request, tmp_path, threads):
        """A store, and a function that analyses one trace into it, whose content or error is given."""
        folder = request.param == "folder"
        store = FleetStore(str(tmp_path / "s") if folder else f"memory://{uuid.uuid4().hex}")

        def analyse(content):
            glob = write_traces(tmp_path / "traces", {"a": content or b""})
            with pytest.MonkeyPatch.context() as patch:
                if content is None:
                    patch.setattr(TraceFile, "read", lambda self: 1 / 0)
                return analyze_traces(glob, store._objects.address, executor=threads)

        return store, analyse

    def test_a_failure_ends_with_the_next_result(self, fleet):
        store, analyse = fleet
        for _ in range(2):  # also a second time
            assert analyse(None).errors[0][1] == "cannot be read: division by zero"
            [failed], _ = store.seen()
            assert failed.why == "cannot be read: division by zero"
            assert analyse(waiting_trace(1)).errors == ()
            [seen], unread = store.seen()
            assert (seen.why, unread) == ("", ())
            assert seen.key in store.index().analysed

    def test_the_newest_content_counts(self, fleet):
        store, analyse = fleet
        for content in (waiting_trace(1), waiting_trace(2), waiting_trace(3)):
            analyse(content)
            [seen], _ = store.seen()
            assert seen.key == hashlib.sha256(content).hexdigest()


def test_a_huge_trace_is_refused_unread(tmp_path, threads):
    glob = write_traces(tmp_path, {"a": b""})
    os.truncate(tmp_path / "a.xplane.pb", 2**31)
    [(_, why)] = analyze_traces(glob, str(tmp_path / "store"), executor=threads).errors
    assert why == "2.1 GB, and protobuf allows less than 2 GiB"


def test_hosts_of_a_run_are_aligned_by_step(tmp_path, threads):
    folder = tmp_path / "logdir/plugins/profile/run_1"
    contents = {f"host_{n}": waiting_trace(1, work=work) for n, work in enumerate((1, 1, 2))}
    write_traces(folder, contents)
    write_traces(folder.parent / "run_2", {"alone": waiting_trace(3)})
    store = str(tmp_path / "store")
    # with shards the hosts of a run come to different machines
    found = [
        analyze_traces(str(tmp_path), store, executor=threads, shard=f"{n}/3") for n in (1, 2, 3)
    ]
    [run] = found[-1].runs
    assert (run.run, run.n_hosts, run.n_unread, run.n_steps) == (str(folder), 3, 0, 3)
    assert (run.slowest, run.step_skew) == ("host_2", pytest.approx(0.5))
    assert sum(one.n_traces for one in found) == 4
    assert rows(store, "runs", "slowest") == [("host_2",)]


def test_a_trace_whose_worker_dies_is_given_to_another(tmp_path):
    contents = different_traces(4)
    glob, store = write_traces(tmp_path, contents), tmp_path / "store"
    with Mortal({"trace_001": 2, "trace_002": 99}) as workers:
        found = analyze_traces(glob, str(store), executor=workers)
    assert workers.calls == {"trace_000": 1, "trace_001": 3, "trace_002": 3, "trace_003": 1}
    [(name, why)] = found.errors
    assert name.endswith("trace_002.xplane.pb")
    assert why == "3 workers died while analysing it"
    others = [content for name, content in contents.items() if name != "trace_002"]
    assert stored(store, "metrics") == tables_of(others)
    assert len(stored(store, "errors")) == 1


def test_a_trace_whose_workers_died_is_tried_again_on_its_own(tmp_path):
    contents = different_traces(4)
    glob = write_traces(tmp_path, contents | {"killer": waiting_trace(5)})
    store = tmp_path / "store"
    with Deadly({"trace_001", "trace_003"}) as workers:
        found = analyze_traces(glob, str(store), executor=workers)
    assert sorted(workers.calls[:5]) == ["killer", *contents]
    assert sorted(workers.calls[5:]) == ["killer", "trace_001", "trace_003"]
    killer, why = f"{tmp_path}/killer.xplane.pb", "4 workers died while analysing it"
    assert found.errors == ((killer, why),)
    assert stored(store, "metrics") == tables_of(contents.values())
    assert rows(store, "errors", "trace, why") == [(killer, why)]


def test_a_trace_that_costs_the_last_worker_has_its_error(tmp_path):
    glob, store = write_traces(tmp_path, {"a": waiting_trace(1), "killer": b""}), tmp_path / "store"
    with (
        Deadly(set(), ends=True) as workers,
        pytest.raises(StoreError, match="the same command does the rest"),
    ):
        analyze_traces(glob, str(store), executor=workers)
    assert rows(store, "errors", "why") == [("4 workers died while analysing it",)]
    assert len(stored(store, "metrics")) == 1


def test_an_executor_that_ends_keeps_what_is_done(tmp_path):
    class Ended(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            if args[0].name.endswith("trace_002.xplane.pb"):
                raise BrokenProcessPool("it ended")
            return super().submit(fn, *args, **kwargs)

    with Ended(1) as workers, pytest.raises(StoreError, match="the same command does the rest"):
        analyze_traces(
            write_traces(tmp_path, different_traces(4)), str(tmp_path / "store"), executor=workers
        )


@pytest.mark.usefixtures("processes")
def test_local_processes_of_which_one_is_killed(tmp_path):
    contents = different_traces(8)
    killed = []

    def kill_one(n_done, n_traces):
        if not killed:
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    store = tmp_path / "store"
    glob = write_traces(tmp_path / "traces", contents)
    found = analyze_traces(glob, str(store), executor=2, progress=kill_one)
    assert killed
    assert (found.n_traces, found.errors) == (8, ())
    assert stored(store, "metrics") == tables_of(contents.values())
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("processes")
def test_the_death_of_a_local_process_costs_its_call_alone():
    with LocalProcesses(1) as pool:
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 1).result()
        assert pool.submit(abs, -2).result() == 2


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_remote_traces_into_a_remote_store(kind, no_reading, threads):
    def check(base):
        files, root = fsspec.core.url_to_fs(base)
        for name, content in different_traces(3).items():
            files.pipe_file(f"{root}/job/{name}.xplane.pb", content)
        # memory is of one process, so the default works in this one
        executor = None if kind == "memory" else threads
        urls, store = [f"{base}/job/**/*.xplane.pb"], f"{base}/store"
        found = analyze_traces(urls, store, executor=executor)
        assert (found.n_traces, found.n_analysed, found.errors) == (3, 3, ())
        traces, unread = FleetStore(store).seen()
        prefix = f"{kind}://"
        assert [trace.name.startswith(prefix) for trace in traces] == [True] * 3
        assert unread == ()
        no_reading()
        assert analyze_traces(urls, store, executor=executor).n_analysed == 0

    if kind == "memory":
        check(f"memory://{uuid.uuid4().hex}")
    else:
        with bucket() as name:
            check(f"s3://{name}/{uuid.uuid4().hex}")
