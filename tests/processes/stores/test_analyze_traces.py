"""Many traces of each kind of file system, by threads and processes: nothing lost, nothing twice."""

import hashlib
import multiprocessing
import os
import signal
import uuid
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import duckdb
import fsspec
import pytest
from helpers.fleets import different_traces, stored, tables_of, waiting_trace, write_traces
from helpers.histories import bucket

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import trace_files, traces
from pytest_tfperf.stores.trace_files import TraceFile
from pytest_tfperf.stores.trace_results import TraceResults
from pytest_tfperf.stores.traces import analyze_traces
from pytest_tfperf.stores.workers import LocalProcesses

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
    """Workers of which one dies with each trace that is named, each time that it has it."""

    def __init__(self, deadly, error=BrokenExecutor):
        super().__init__(2)
        self.deadly, self.error, self.calls = deadly, error, Counter()

    def submit(self, fn, /, *args, **kwargs):
        name = args[0].name.rpartition("/")[2].removesuffix(".xplane.pb")
        self.calls[name] += 1
        if name not in self.deadly:
            return super().submit(fn, *args, **kwargs)
        future = Future()
        future.set_exception(self.error("it died"))
        return future


class KilledWorker(Exception):
    """Stands for Dask's error of a trace that was on each of several workers that died."""


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
    assert len(stored(store, "traces")) == 3
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
    assert rows(store, "traces", "why")[-1] == (why,)
    assert len(stored(store, "traces")) == 6


def test_a_trace_that_cannot_be_read_is_tried_again(tmp_path, threads, monkeypatch):
    glob, store = write_traces(tmp_path / "traces", different_traces(2)), tmp_path / "store"
    with monkeypatch.context() as patch:

        def read(self):
            raise PermissionError(13, "Permission denied")

        patch.setattr(TraceFile, "read", read)
        found = analyze_traces(glob, str(store), executor=threads)
    assert [why for _, why in found.errors] == ["cannot be read: Permission denied"] * 2
    assert [name[-14:] for name in stored(store, "traces")] == ["failed.parquet"] * 2
    assert analyze_traces(glob, str(store), executor=threads).errors == ()
    assert len(stored(store, "metrics")) == 2
    assert {trace["why"] for trace in traces_of(TraceResults(str(store)))} == {""}


def test_an_analysis_that_fails_is_tried_again(tmp_path, threads, monkeypatch):
    glob, store = write_traces(tmp_path / "traces", different_traces(2)), str(tmp_path / "store")
    for error, why in ((MemoryError("no room"), "MemoryError: no room"), (ValueError(), "Value")):
        with monkeypatch.context() as patch:
            patch.setattr(traces, "analyse_trace", lambda trace, error=error: _raise(error))
            found = analyze_traces(glob, store, executor=threads)
        assert all(f"the analysis failed: {why}" in one for _, one in found.errors)
        assert len(found.errors) == 2
    assert analyze_traces(glob, store, executor=threads).errors == ()


def _raise(error):
    raise error


def traces_of(store):
    found, unread = store.traces(store.index())
    assert unread == ()
    return found


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
        store = str(tmp_path / "s") if folder else f"memory://{uuid.uuid4().hex}"

        def analyse(content):
            glob = write_traces(tmp_path / "traces", {"a": content or b""})
            with pytest.MonkeyPatch.context() as patch:
                if content is None:
                    patch.setattr(TraceFile, "read", lambda self: 1 / 0)
                return analyze_traces(glob, store, executor=threads)

        return TraceResults(store), analyse

    def test_a_failure_ends_with_the_next_result(self, fleet):
        store, analyse = fleet
        for _ in range(2):  # also a second time
            assert analyse(None).errors[0][1] == "cannot be read: division by zero"
            [failed] = traces_of(store)
            assert failed["why"] == "cannot be read: division by zero"
            assert analyse(waiting_trace(1)).errors == ()
            [seen] = traces_of(store)
            assert seen["why"] == ""
            assert seen["sha256"] in store.index().analysed

    def test_the_newest_content_counts(self, fleet):
        store, analyse = fleet
        for content in (waiting_trace(1), waiting_trace(2), waiting_trace(3)):
            analyse(content)
            [seen] = traces_of(store)
            assert seen["sha256"] == hashlib.sha256(content).hexdigest()


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


def test_runs_whose_steps_are_read_together_are_aligned_apart(tmp_path, threads, monkeypatch):
    monkeypatch.setattr(traces, "_HOSTS_AT_A_TIME", 3)
    for n in (1, 2, 3):
        hosts = {f"host_{work}": waiting_trace(n, work=work) for work in (1, 1 + n)}
        write_traces(tmp_path / f"plugins/profile/run_{n}", hosts)

    def aligned(name, store):
        url = f"{tmp_path}/plugins/profile/{name}/*.xplane.pb"
        return analyze_traces(url, str(tmp_path / store), executor=threads).runs

    alone = [run for n in (1, 2, 3) for run in aligned(f"run_{n}", f"store_{n}")]
    assert len({run.step_skew for run in alone}) == 3
    together = aligned("*", "store")
    assert sorted(together, key=lambda run: run.run) == alone
    assert [run.step_skew for run in together] == sorted((r.step_skew for r in alone), reverse=True)


@pytest.mark.parametrize("error", [BrokenExecutor, KilledWorker])
def test_a_worker_that_dies_costs_the_traces_that_it_had(tmp_path, error):
    contents = different_traces(4)
    glob, store = write_traces(tmp_path, contents), tmp_path / "store"
    with Mortal({"trace_001", "trace_002"}, error) as workers:
        found = analyze_traces(glob, str(store), executor=workers)
    assert set(workers.calls.values()) == {1}
    why = "its worker died; the next run tries it again"
    assert [(name[-19:-10], one) for name, one in found.errors] == [
        ("trace_001", why),
        ("trace_002", why),
    ]
    assert len(stored(store, "metrics")) == 2
    assert [row for row in rows(store, "traces", "why") if row[0]] == [(why,), (why,)]
    with Mortal({"trace_002"}, error) as workers:
        found = analyze_traces(glob, str(store), executor=workers)
    assert workers.calls == {"trace_001": 1, "trace_002": 1}
    assert [name[-19:-10] for name, _ in found.errors] == ["trace_002"]
    assert len(stored(store, "metrics")) == 3


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
    assert found.n_traces == 8
    assert len(found.errors) <= 1  # of the trace that it had, if it had one
    assert len(stored(store, "metrics")) >= 7
    assert analyze_traces(glob, str(store), executor=2).errors == ()
    assert stored(store, "metrics") == tables_of(contents.values())
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("processes")
def test_a_pool_that_is_given_breaks_whole_and_keeps_what_is_done(tmp_path):
    contents = different_traces(6)
    glob, store = write_traces(tmp_path / "traces", contents), str(tmp_path / "store")

    def kill_all(n_done, n_traces):
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = analyze_traces(glob, store, executor=pool, progress=kill_all)
    assert {why for _, why in found.errors} == {"its worker died; the next run tries it again"}
    assert len(found.errors) + found.n_analysed == 6
    assert analyze_traces(glob, store, executor=1).errors == ()


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
        prefix = f"{kind}://"
        named = [trace["trace"].startswith(prefix) for trace in traces_of(TraceResults(store))]
        assert named == [True] * 3
        no_reading()
        assert analyze_traces(urls, store, executor=executor).n_analysed == 0

    if kind == "memory":
        check(f"memory://{uuid.uuid4().hex}")
    else:
        with bucket() as name:
            check(f"s3://{name}/{uuid.uuid4().hex}")
