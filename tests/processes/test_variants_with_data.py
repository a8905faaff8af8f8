"""`tf_profile.compare` with data: each variant in a process of its own, whatever becomes of these."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from helpers.git_repository import commit, git
from helpers.paths import TESTS

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
import pytest
from pytest_tfperf.errors import CaptureError, UnknownMetric

HERE = Path(__file__).parent

def in_child():
    return any(argument.startswith("--tfperf-child") for argument in sys.orig_argv)

def fast():
    time.sleep(0.002)

def slow():
    time.sleep(0.006)

"""

PASS = """
@pytest.fixture
def torn_down():
    yield
    with (HERE / "torn down").open("a") as file:
        print(in_child(), file=file)

def test_faster(torn_down, tf_profile, tmp_path):
    (tmp_path / "own").mkdir()  # in each process another
    clock = (HERE / "clock").open("a", buffering=1)

    def ticking(name, step):
        def tick():
            while True:
                print(name, file=clock)
                time.sleep(0.001)

        thread = threading.Thread(target=tick, daemon=True)
        return lambda: (thread.is_alive() or thread.start(), step())

    steps = {"slow": ticking("slow", slow), "fast": ticking("fast", fast)}
    found = tf_profile.compare(steps, max_seconds=1.0)
    assert found.variants == ("slow", "fast")
    assert 1 < found.speedup("fast").low < found.speedup("fast", over="slow").ratio
    assert found.notes[0].startswith("each variant ran in a process of its own, on ")
    assert len(found.turns["fast"]) == len(found.turns["slow"]) >= 8
    assert found.profiles["slow"].value("step_time").detail["turns_with"] == ["fast"]
    (HERE / "n_rounds").write_text(str(len(found.turns["slow"])))

@pytest.mark.parametrize("text", ["x/y::z [1]"])
def test_three(tf_profile, text):
    found = tf_profile.compare({"a": fast, "b": fast, "c": slow}, a=dict(batch=8), c=dict(batch=None))
    assert found.step_time("c") > found.step_time("a")
    assert found.notes[1] == (
        "batch sizes differ (8 of a, 4 of b, unknown of c), so that a step is not the same work: compare throughput"
    )

class TestGroup:
    def test_second_call(self, tf_profile):
        before = tf_profile(slow, "before")
        first = tf_profile.compare({"slow": slow, "fast": fast})
        with (HERE / "log").open("a") as log:
            print(in_child(), first.turns, first.notes, first.profiles["fast"].step_time, file=log)
        second = tf_profile.compare({"fast": fast, "slow": slow}, name="again")
        assert second.speedup("fast", over="slow").ratio > 1
        assert list(tf_profile.profiles) == ["before", "slow", "fast", "again fast", "again slow"]
        assert in_child() is False

def test_after_failures_that_are_expected(tf_profile):
    def raises():
        raise ValueError

    with pytest.raises(CaptureError, match="variant 'bad' fails in its process"):
        tf_profile.compare({"good": fast, "bad": raises}, name="first")
    with pytest.raises(AssertionError, match="variants 'a' and 'b' return different outputs in their first step:"):
        tf_profile.compare({"a": fast, "b": fast}, max_seconds=0.1, name="second", outputs={"a": 1.0, "b": 2.0})
    tf_profile.compare({"a": fast, "b": fast}, max_seconds=0.1, outputs={"a": 1.0, "b": 1.0})

def test_data_that_end(tf_profile):
    found = tf_profile.compare({"a": fast, "b": fast}, b=dict(most=8))
    assert found.notes[1] == "the data of b ended within a turn, and cannot be started again"
    with pytest.raises(UnknownMetric):
        found.speedup("b").low
"""

FAIL = """
def raises():
    print("seen on the way")
    raise ValueError("no such element")

@pytest.fixture
def torn_down():
    yield
    with (HERE / "torn down").open("a") as file:
        print(in_child(), file=file)

def test_raises(torn_down, tf_profile):
    tf_profile.compare({"good": fast, "bad": raises})

def test_raises_in_a_later_turn(tf_profile):
    calls = iter(range(10))
    tf_profile.compare({"good": fast, "bad": lambda: (next(calls), fast())})

def test_crashes(tf_profile):
    tf_profile.compare({"bad": lambda: os.kill(os.getpid(), signal.SIGSEGV), "good": fast})

def test_hangs_before(tf_profile):
    if in_child():
        time.sleep(100)
    tf_profile.compare({"a": fast, "b": fast})

def test_exits(tf_profile):
    if in_child():
        pytest.exit("no more")
    tf_profile.compare({"a": fast, "b": fast})

def test_skips(tf_profile):
    if in_child():
        pytest.skip("not here")
    tf_profile.compare({"a": fast, "b": fast})

def test_another_way(tf_profile):
    if not in_child():
        tf_profile.compare({"a": fast, "b": fast})

def test_other_variants(tf_profile):
    tf_profile.compare({"a": fast, "c" if in_child() else "b": fast})

@pytest.mark.parametrize("pid", [os.getpid()])
def test_of_another_name(tf_profile, pid):
    tf_profile.compare({"a": fast, "b": fast})

def test_ends_at_once(tf_profile):
    tf_profile.compare({"a": fast, "b": fast}, b=dict(most=0))

def test_goes_on(tf_profile):
    assert tf_profile.compare({"a": fast, "b": fast}, max_seconds=0.1).step_time("a") > 0
"""


class Project:
    def __init__(self, folder, **files):
        self.path = folder / "project"
        self.path.mkdir()
        (self.path / "pytest.ini").write_text("[pytest]\naddopts = -p tfperf -p no:cacheprovider\n")
        (self.path / "conftest.py").write_text("from helpers.light_profiler import *\n")
        for name, body in files.items():
            (self.path / f"{name}.py").write_text(PRELUDE + body)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    def start(self, *arguments):
        kept = {
            key: text for key, text in os.environ.items() if not key.startswith(("PYTEST", "COV_"))
        }
        own = {
            "TMPDIR": str(self.temporary),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=kept | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments):
        """What each test of a run came to: None, or how it failed; and what was printed."""
        process = self.start("--junitxml=junit.xml", *arguments)
        output, _ = process.communicate(timeout=120)
        cases = ET.parse(self.path / "junit.xml").getroot().iter("testcase")
        return {
            case.get("name"): next(
                (child.text for child in case if child.tag in ("failure", "error")), None
            )
            for case in cases
        }, output

    def left(self):
        """Folders of ours, and processes that run the project."""
        folders = [
            path.name
            for path in self.temporary.iterdir()
            if path.name.startswith("tfperf") and "-locks-" not in path.name
        ]
        return folders + [
            pid.name for pid in Path("/proc").iterdir() if pid.name.isdigit() and self._runs(pid)
        ]

    def _runs(self, pid):
        try:
            return (pid / "cwd").readlink() == self.path and b"--tfperf-child" in (
                pid / "cmdline"
            ).read_bytes()
        except OSError:
            return False

    def nothing_is_left(self, seconds=10.0):
        deadline = time.monotonic() + seconds
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.left()


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("passed"), test_pass=PASS)
    return project, *project.run()


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("failed"), test_fail=FAIL)
    return project, *project.run()


def test_variants_are_compared(passed):
    _, outcomes, output = passed
    assert set(outcomes.values()) == {None}, output
    assert len(outcomes) == 5


def test_a_later_call_finds_what_the_earlier_found(passed):
    project, _, _ = passed
    found = [line.split(" ", 1) for line in (project.path / "log").read_text().splitlines()]
    assert sorted(where for where, _ in found) == ["False", "True", "True"]
    assert len({what for _, what in found}) == 1


def test_what_was_set_up_in_the_processes_is_torn_down_there(passed, failed):
    for project in (passed[0], failed[0]):
        where = (project.path / "torn down").read_text().splitlines()
        assert sorted(where) == ["False", "True", "True"]


def test_the_others_stand_still_meanwhile(passed):
    project, _, _ = passed
    names = (project.path / "clock").read_text().split()
    changes = sum(name != before for name, before in zip(names[1:], names[:-1], strict=True))
    assert len(names) > 4 * changes
    assert changes <= 2 * int((project.path / "n_rounds").read_text()) + 4


def test_nothing_is_left(passed, failed):
    assert passed[0].nothing_is_left()
    assert failed[0].nothing_is_left()


ENDS = {
    "test_raises": [
        "variant 'bad' fails in its process:",
        "ValueError: no such element",
        "seen on the way",
    ],
    "test_raises_in_a_later_turn": ["variant 'bad' fails in its process:", "StopIteration"],
    "test_crashes": [
        "the process of variant 'bad' ended with SIGSEGV",
        "its stderr:",
        "Current thread",
    ],
    "test_hangs_before": ["the process of variant 'a' did not answer within 1 s"],
    "test_exits": ["variant 'a' stopped the run in its process: no more"],
    "test_skips": ["variant 'a' is skipped in its process: ", "not here"],
    "test_another_way": [
        "the process of variant 'a' came to the end of the test without this call of compare"
    ],
    "test_other_variants": ["run again, this call of compare has other profiles: a, c and no b"],
    "test_of_another_name": [
        "the process of variant 'a' has no test of this name:",
        "collected a second time",
    ],
    "test_ends_at_once": ["not one round of turns was run: the data of b ended within a turn"],
}


def test_what_becomes_of_a_process_fails_the_test_that_started_it(failed):
    _, outcomes, output = failed
    for test, parts in ENDS.items():
        text = next(text for name, text in outcomes.items() if name.partition("[")[0] == test)
        assert text is not None, (test, output)
        assert "CaptureError" in text, test
        for part in parts:
            assert part in text, test


def test_after_a_failure_the_next_test_goes_on(failed):
    assert failed[1]["test_goes_on"] is None


INTERRUPTED = """
def test_long(tf_profile):
    def step():
        (HERE / ("started " + str(os.getpid()))).touch()
        time.sleep(0.05)

    tf_profile.compare({"a": step, "b": step}, max_seconds=100, a=dict(time_of_step=0.05), b=dict(time_of_step=0.05))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_stopped(tmp_path, number):
    project = Project(tmp_path, test_long=INTERRUPTED)
    process = project.start()
    while len(list(project.path.glob("started *"))) < 2:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    assert len(project.left()) >= 3
    process.send_signal(number)
    process.communicate(timeout=20)
    assert project.nothing_is_left(), project.left()


SHARED = """
@pytest.mark.parametrize("number", [1, 2])
def test_worker(tf_profile, worker_id, number):
    assert worker_id.startswith("gw")
    found = tf_profile.compare({"a": fast, "b": fast}, max_seconds=0.1)
    assert not [note for note in found.notes if "other workers" in note]
"""


@pytest.mark.nightly
def test_workers_of_xdist_have_variants_too(tmp_path):
    outcomes, output = Project(tmp_path, test_shared=SHARED).run("-p", "xdist", "-n", "2")
    assert outcomes == {"test_worker[1]": None, "test_worker[2]": None}, output


AGAINST = """
def test_nested(tf_profile):
    found = tf_profile.compare({"a": fast, "b": slow}, max_seconds=0.5)
    assert found.speedup("a", over="b").ratio > 1.5
"""


@pytest.mark.nightly
def test_under_a_paired_run_variants_take_turns_with_each_other_and_not_with_the_ref(tmp_path):
    project = Project(tmp_path, test_nested=AGAINST)
    git(project.path, "init", "-q")
    commit(project.path, "first", {})
    outcomes, output = project.run("--tfperf-against=HEAD", "--tfperf-report=run.json")
    assert outcomes == {"test_nested": None}, output
    checks = json.loads((project.path / "run.json").read_text())["tests"][0]["checks"]
    found = {
        check["profile"]: (check["verdict"], check["message"])
        for check in checks
        if check["metric"] == "step_time"
    }
    message = "step_time is not compared: it was measured in a process of its own, in turns with {} and not with HEAD"
    assert found == {
        "a": ("INCONCLUSIVE", message.format("b")),
        "b": ("INCONCLUSIVE", message.format("a")),
    }
    assert project.nothing_is_left()


LIVE = """
import numpy as np
import tensorflow as tf

BRIEF = dict(warmup=2, trace_steps=3)

def data(n):
    return tf.data.Dataset.from_tensor_slices((np.ones((64, n), "float32"), np.arange(64))).batch(8).repeat()

@tf.function
def step(x, y):
    return tf.reduce_sum(x * x, axis=1), y

@pytest.mark.tfperf(steps=20)
def test_pipelines(tf_profile):
    tf_profile(step, data(2), name="before", **BRIEF)
    compiled = tf.function(step.python_function, jit_compile=True)
    found = tf_profile.compare({"plain": step, "xla": compiled}, data(4), check_outputs=True, unpack=True, limits={"xla_clusters": 1}, **BRIEF)
    assert found.profiles["plain"].xla_clusters == 0
    assert found.profiles["xla"].workload["inputs"] == ["float32[8,4]", "int64[8]"]
    assert list(tf_profile.profiles) == ["before", "plain", "xla"]
"""


@pytest.mark.nightly
def test_real_pipelines(tmp_path):
    project = Project(tmp_path, test_live=LIVE)
    (project.path / "conftest.py").write_text(
        "from pytest_tfperf.turns import rounds as turn_runner\n"
        "turn_runner._PIPELINE_S = turn_runner._PIPELINE_UNTIMED_S = 0.02\n"
    )
    outcomes, output = project.run("-o", "tfperf_max_seconds=1", "--tfperf-trace-dir=traces")
    assert "xla_clusters is 0, not 1" in str(outcomes["test_pipelines"]), output
    kept = [
        path.relative_to(project.path / "traces").parts[1]
        for path in project.path.rglob("*.xplane.pb")
    ]
    assert sorted(kept) == ["before", "plain", "xla"]
    assert project.nothing_is_left()
