"""
The step table of traces captured in this run, against the XProf that opens the kept logdir as it is.

XProf is the wheel, in an environment of its own that pytest's cache keeps; `XPROF_PYTHON` names another Python that has it.
"""

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch

import numpy as np
import pytest
from filelock import FileLock
from helpers.paths import ROOT
from helpers.profilers import profiler as new_profiler
from helpers.xprof import COLUMNS, reasons

from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import covered, merge, subtract
from pytest_tfperf.trace.xspace import read_trace

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]

WHEEL = "xprof==2.24.2"
N_TRACED = 7
RUNS = ("fit", "jit", "two", "call", "loop", "trace")

# what a browser would ask XProf's server for, of a logdir: the runs, and of each its tools, hosts and Overview page
ASK = """
import gzip, json, sys
from werkzeug.test import Client
from xprof import server
from xprof.standalone.base_plugin import TBContext
from xprof.standalone.plugin_event_multiplexer import DataProvider

logdir, out = sys.argv[1:]
context = TBContext(logdir, DataProvider(logdir), TBContext.Flags(False))
client = Client(server.make_wsgi_app(server.ProfilePluginLoader().load(context)))

def get(path, **query):
    reply = client.get("/data/plugin/profile/" + path, query_string=query)
    assert reply.status_code == 200, (path, query, reply.status)
    content = reply.get_data()
    return json.loads(gzip.decompress(content) if content.startswith(b"\\x1f\\x8b") else content)

answers = {}
for run in get("runs"):
    hosts = [host["hostname"] for host in get("hosts", run=run, tag="overview_page")]
    page = get("data", run=run, tag="overview_page", host=hosts[0])
    answers[run] = {"tools": get("run_tools", run=run), "hosts": hosts, "page": page}
open(out, "w").write(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def xprof(request):
    """A Python that has XProf."""
    if "XPROF_PYTHON" in os.environ:
        return os.environ["XPROF_PYTHON"]
    folder = request.config.cache.mkdir(WHEEL.replace("==", "-"))
    python, done = folder / "bin" / "python", folder / "installed"
    with FileLock(f"{folder}.lock"):  # of two workers
        if not done.exists():
            made = subprocess.run(
                [sys.executable, "-m", "venv", "--clear", folder], capture_output=True, text=True
            )
            install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", WHEEL]
            if not made.returncode:
                made = subprocess.run(install, capture_output=True, text=True)
            if made.returncode:
                (pytest.fail if os.environ.get("TFPERF_TESTS_IN_CI") else pytest.skip)(
                    f"{WHEEL} cannot be installed: {made.stderr[-500:]}"
                )
            done.touch()
    return str(python)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """What `--tfperf-trace-dir` keeps of a profile of each form."""
    import keras
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("kept")
    wanted = {"warmup": 3, "steps": 12, "trace_steps": N_TRACED}
    profiler = new_profiler(wanted, kept_traces=folder)
    random = np.random.default_rng(0)
    x, y = random.random((2000, 32), "float32"), random.random((2000, 1), "float32")
    for name, options in (
        ("fit", {}),
        ("jit", {"jit_compile": True}),
        ("two", {"steps_per_execution": 2}),
    ):
        model = keras.Sequential(
            [
                keras.layers.Input((32,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", **({"jit_compile": False} | options))
        profiler.fit(model, x, y, batch_size=16, epochs=8, verbose=0, name=name)
    weight = tf.Variable(tf.random.normal((32, 1)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    data = (
        tf.data.Dataset.from_tensor_slices((x, y))
        .map(lambda x, y: (tf.tanh(x), y), num_parallel_calls=2)
        .batch(16)
        .repeat()
        .prefetch(2)
    )
    profiler(step, data, name="call")
    for batch in profiler.steps(data, name="loop"):
        step(*batch)
    with profiler.trace(name="trace") as bracket:
        elements = iter(data)
        for _ in range(N_TRACED):
            with bracket.step():
                step(*next(elements))
    profiler.close()
    return folder


def asked(xprof, logdir, folder):
    """XProf's answers about each run of a logdir."""
    out = folder / "answers.json"
    done = subprocess.run([xprof, "-c", ASK, logdir, out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return {run.partition("/")[0]: answer for run, answer in json.loads(out.read_text()).items()}


@pytest.fixture(scope="module")
def answers(xprof, logdir, tmp_path_factory):
    return asked(xprof, logdir, tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def traces(logdir):
    return {
        name: read_trace(next((logdir / name).glob("plugins/profile/*/*.xplane.pb")))
        for name in RUNS
    }


def rows_of(answer):
    """The steps of XProf's table, in milliseconds."""
    table = next(
        part
        for part in answer["page"]
        if any(column["id"] == "stepnum" for column in part.get("cols", ()))
    )
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]


def as_xprof_counts(trace, name):
    """Period, input and host_compute of a step by XProf's rule, in milliseconds, from the events alone."""
    host = Events.of(trace.plane("/host:CPU"))
    roots = host.having("_r").having("step_num")
    number = int(name.rpartition(" ")[2])
    root = roots.where((roots.integers("step_num") == number) & (roots.line == roots.line[0]))
    begin, end = root.start, root.end
    grouped = caused_by(host, root)
    grouped = grouped.where(
        grouped.end <= end[0]
    )  # XProf counts nothing of what ends behind the step
    waits = merge(grouped.named(lambda text: text.startswith("IteratorGetNext")).spans)
    computing = subtract(
        merge(grouped.where(grouped.rows != root.rows[0]).named(_counts).spans), waits
    )
    milliseconds = [
        (end - begin)[0] * 1e-9,
        covered(waits, begin, end)[0] * 1e-9,
        covered(computing, begin, end)[0] * 1e-9,
    ]
    return dict(zip(("period", "input", "host_compute"), milliseconds, strict=True))


def caused_by(host, root):
    """What lies in an event on its thread, and what others lie in that such events hand work to, by the ids of producers and consumers."""
    fetches, processes = (
        host.called("IteratorGetNextOp::DoCompute"),
        host.called("ExecutorState::Process"),
    )
    consumers = ids_of(host.having("_c"), "_ct", "_c") | ids_of(fetches, "id", "iter_num")
    makers = ids_by_row(host.having("_p"), "_pt", "_p") | ids_by_row(processes, "id", "iter_num")
    stops = host.called("ThreadpoolListener::StopRegion")
    found, waiting = set(), [int(root.rows[0])]
    while waiting:
        row = waiting.pop()
        event = Events(host.plane, np.array([row]))
        end = event.end[0]
        if event.names == [
            "ThreadpoolListener::StartRegion"
        ]:  # a task of a thread pool lasts until its region stops
            end = min(
                (stop for stop in stops.on_line(int(event.line[0])).end.tolist() if stop >= end),
                default=end,
            )
        line = host.on_line(int(event.line[0]))
        inside = line.where((line.start >= event.start[0]) & (line.end <= end))
        new = inside.where(~np.isin(inside.rows, list(found)))
        found.update(new.rows.tolist())
        keys = [makers[row] for row in new.rows.tolist() if row in makers]
        waiting += [
            consumer for key in keys for consumer in consumers.get(key, ()) if consumer not in found
        ]
    return Events(host.plane, np.array(sorted(found)))


def ids_by_row(events, *stats):
    """The values of two stats of each event, by its row."""
    columns = (events.integers(stat).tolist() for stat in stats)
    return {
        row: (stats[0] == "id", *values)
        for row, *values in zip(events.rows.tolist(), *columns, strict=True)
    }


def ids_of(events, *stats):
    """The rows of the events that have the same values of two stats."""
    rows = {}
    for row, key in ids_by_row(events, *stats).items():
        rows.setdefault(key, []).append(row)
    return rows


def _counts(name):
    marks = name.startswith(("train", "test", "TraceContext")) and "/" not in name
    return not marks and not name.startswith(
        ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun")
    )


def test_the_kept_logdir_opens_in_xprof(answers, logdir):
    for name in RUNS:
        assert answers[name]["tools"][0] == "overview_page", name
        assert "trace_viewer@" in answers[name]["tools"], name
        (kept,) = (logdir / name).glob("plugins/profile/*/*.xplane.pb")
        assert answers[name]["hosts"] == [kept.name.removesuffix(".xplane.pb")]


def test_every_difference_from_xprof_has_a_reason(answers, traces):
    for name in RUNS:
        steps = find_steps(traces[name])
        breakdown = break_down(traces[name], steps)
        rows = rows_of(answers[name])
        found = {"steps"} if len(rows) != len(steps) else set()
        for row in rows:
            index = steps.names.index(row["stepnum"])
            ours = {part: column[index] * 1e-9 for part, column in breakdown.parts_ps.items()}
            ours["period"] = steps.period_ps[index] * 1e-9
            found |= {
                column for column, key in COLUMNS.items() if abs(ours[column] - row[key]) > 1e-6
            }
            assert ours["period"] >= row["stepTimeMs"] - 1e-6, (name, row)
            # while an op runs on another thread, XProf's step may wait for input, and ours computes
            not_waiting = max(row["infeedTimeMs"] - ours["input"], 0)
            most = row["hostComputeTimeMs"] + not_waiting + 1e-6
            assert ours["host_compute"] <= most, (name, row, ours)
        allowed = {
            column
            for patterns, columns in reasons(live=True)
            if any(fnmatch(f"live_{name}", each) for each in patterns)
            for column in columns
        }
        assert found <= allowed, name


def test_what_xprof_shows_follows_from_the_events(answers, traces):
    for name in RUNS:
        rows = rows_of(answers[name])
        assert len(rows) == (0 if name == "two" else N_TRACED - 2), name
        for row in rows:
            expected = as_xprof_counts(traces[name], row["stepnum"])
            shown = {column: row[COLUMNS[column]] for column in expected}
            assert shown == pytest.approx(expected, abs=1e-6), (name, row)


def test_the_stored_answers_of_the_page_side_by_side_are_those_of_xprof(xprof, tmp_path):
    stored = ROOT / "tests" / "data" / "side_by_side"
    kept = tmp_path / "logdir" / "plugins" / "profile" / "slow_source"
    kept.mkdir(parents=True)
    shutil.copy(stored / "slow_source.xplane.pb", kept / "vm.xplane.pb")
    answer = asked(xprof, tmp_path / "logdir", tmp_path)["slow_source"]
    wanted = json.loads((stored / "xprof.json").read_text())
    assert [{key: row[key] for key in wanted["steps"][0]} for row in rows_of(answer)] == wanted[
        "steps"
    ]
    texts = {key: text for part in answer["page"] for key, text in part.get("p", {}).items()}
    for key in ("input_conclusion", "host_op_time_eager_percent"):
        assert texts[key] == wanted[key]


def test_there_are_reasons_to_read():
    assert len(reasons(live=True)) >= 5
    assert {column for _, columns in reasons(live=True) for column in columns} == {
        "period",
        "other",
        "steps",
        "host_compute",
        "input",
    }
