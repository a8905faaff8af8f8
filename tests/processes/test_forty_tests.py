"""
Forty tests that TensorFlow really runs (tests/suites/forty_tests) say the same however they are spread, ordered and run again; and what is left of
one that ends while it is traced.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid

import pytest
from helpers.paths import SUITES
from helpers.processes import until, with_variable

from pytest_tfperf.metric_registry import MACHINE, METRICS

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]
FORTY = SUITES / "forty_tests"
INI = "[pytest]\npythonpath = .\naddopts = -p tfperf -p no:cacheprovider\ntfperf_warmup = 2\ntfperf_steps = 4\ntfperf_trace_steps = 3\n"
FAILED = {
    "test_one_executable[not-compiled]",
    "test_compiles_again",
    "test_traces_again[0]",
    "test_eager[3]",
    "test_gets_better",
    "test_fails_of_itself",
    "TestData::test_last_batch_is_smaller",
    "TestKeras::test_predict",
    "TestCase::test_array",
}
SKIPPED = {"test_skips", "test_two_executables"}  # the second is an expected failure
RERUNS = ["-p", "rerunfailures", "--reruns=1"]
WAYS = {
    "no workers": ["-p", "xdist", "-n0"],
    "two workers": ["-p", "xdist", "-n2"],
    "four workers": ["-p", "xdist", "-n4"],
    "by scope": ["-p", "xdist", "-n2", "--dist=loadscope"],
    "by file": ["-p", "xdist", "-n2", "--dist=loadfile"],
    "by group": ["-p", "xdist", "-n2", "--dist=loadgroup"],
    "stealing": ["-p", "xdist", "-n2", "--dist=worksteal"],
    "each": ["-p", "xdist", "-n2", "--dist=each"],
    "an order of chance": ["-p", "randomly", "--randomly-seed=7"],
    "reruns": RERUNS,
    "reruns in workers, in an order of chance": [
        "-p",
        "xdist",
        "-n2",
        "-p",
        "randomly",
        "--randomly-seed=8",
        *RERUNS,
    ],
}


def environment(temporary, **variables):
    own = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TMPDIR": str(temporary),
    }
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "COV_"))
    }
    return {**kept, **own, **variables}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the forty in a process of its own, and gives its exit status and the tests of its run file by their names."""
    folder = tmp_path_factory.mktemp("forty")
    (folder / "pytest.ini").write_text(INI)
    for file in FORTY.glob("*.py"):
        shutil.copy(file, folder / (file.name if file.stem == "steps" else f"test_{file.name}"))
    (folder / "tmp").mkdir()

    def run(*arguments):
        file = folder / "run.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", f"--tfperf-report={file}", *arguments]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder / "tmp"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert file.exists(), done.stdout + done.stderr
        tests = json.loads(file.read_text())["tests"]
        assert len({test["nodeid"] for test in tests}) == len(tests) == 40, done.stdout
        return done.returncode, {test["key"]: test for test in tests}

    return run


@pytest.fixture(scope="module")
def alone(run):
    return run()


def said(test):
    """
    What is the same in every run: where the test is, its workload and structure, and what is decided of it.

    Of times not even which are known: where a prefetch buffer drains, windows are measured again, and then an epoch may end in them.
    """
    profiles = {
        (one["name"], name): structural(name, value)
        for one in test["profiles"]
        for name, value in one["metrics"].items()
        if METRICS[name].scope != MACHINE
    }
    workloads = {(one["name"], "workload"): one["workload"] for one in test["profiles"]}
    checks = [
        (check["profile"], check["metric"], check["verdict"], check["message"])
        for check in test["checks"]
    ]
    decided = [check for check in checks if check[1] != "step_time"]
    return {
        **profiles,
        **workloads,
        "file": test["file"],
        "nodeid": test["nodeid"],
        "outcome": test["outcome"],
        "checks": decided,
    }


def structural(name, value):
    """A number, or why it is none; of memory that is measured, its source, since the order of ops changes it."""
    if value["value"] is None:
        return value["why"]
    measured = name == "peak_memory" and value["source"] != "hlo"
    return value["source"] if measured else value["value"]


def unlike(one, other):
    """What two runs of a test say differently."""
    first, second = said(one), said(other)
    return {
        what: (first.get(what), second.get(what))
        for what in first | second
        if first.get(what) != second.get(what)
    }


def outcomes(tests):
    return {
        outcome: {key for key, test in tests.items() if test["outcome"] == outcome}
        for outcome in ("failed", "skipped")
    }


def test_the_forty_are_what_was_counted_by_hand(alone):
    status, tests = alone
    assert status == pytest.ExitCode.TESTS_FAILED
    assert outcomes(tests) == {"failed": FAILED, "skipped": SKIPPED}
    counted = {
        "test_compiles_again": ("xla_compiles", 1),
        "test_traces_again[3]": ("retraces", 3),
        "test_eager[2]": ("eager_ops", 2),
        "test_own_process": ("xla_clusters", 1),
    }
    assert {
        key: tests[key]["profiles"][0]["metrics"][name]["value"]
        for key, (name, _) in counted.items()
    } == {key: number for key, (_, number) in counted.items()}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_however_they_run_they_say_the_same(run, alone, way):
    (status, expected), (its_status, found) = alone, run(*way)
    better = {"test_gets_better"} if "--reruns=1" in way else set()  # the last run counts
    assert outcomes(found) == {"failed": FAILED - better, "skipped": SKIPPED}
    assert {check["verdict"] for key in better for check in found[key]["checks"]} <= {"PASS"}
    differing = {
        key: unlike(test, expected[key]) for key, test in found.items() if key not in better
    }
    assert {key: what for key, what in differing.items() if what} == {}
    assert its_status == status
    [time] = [
        check["verdict"] for check in found["test_time"]["checks"] if check["metric"] == "step_time"
    ]
    assert time == "PASS"


HANGS = """
import os, time
from pathlib import Path

import pytest
import tensorflow as tf

from pytest_tfperf.capture.sessions import user_session_runs

ONES = [tf.ones((8, 8))] * 4
pytestmark = pytest.mark.tfperf(max_retraces=0)

def test_before(tf_profile):
    tf_profile(tf.function(lambda x: x * 2), ONES)

@pytest.mark.tfperf(autocluster="OWN" in os.environ)
def test_hangs(tf_profile):
    calls, double = [], tf.function(lambda x: x * 2)

    def step(x):
        double(x)
        calls.append(x)
        if len(calls) == 9 and "HANG" in os.environ:
            assert user_session_runs()  # in the traced window
            Path(os.environ["HANG"]).write_text(str(os.getpid()))
            time.sleep(60)

    tf_profile(step, ONES)

@pytest.mark.parametrize("n", range(3))
def test_after(tf_profile, n):
    tf_profile(tf.function(lambda x: x * 2), ONES)
"""


@pytest.fixture
def hanging(tmp_path):
    """Starts pytest on a test that hangs in its traced window; gives pytest, the process that hangs, and how to see what is left."""
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "tmp").mkdir()

    def start(*arguments, **variables):
        return Hanging(tmp_path, arguments, variables)

    return start


class Hanging:
    def __init__(self, folder, arguments, variables):
        self.folder, self.id = folder, uuid.uuid4().hex
        hangs = folder / "hangs"
        self.process = self.start(*arguments, HANG=str(hangs), **variables)
        until(
            lambda: self.process.poll() is not None or (hangs.exists() and hangs.read_text()), 120
        )
        assert self.process.poll() is None, self.text()
        self.pid = int(hangs.read_text())

    def start(self, *arguments, **variables):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tfperf-report=run.json",
            "--tfperf-update",
            *arguments,
        ]
        with (self.folder / "output").open("w") as output:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment(self.folder / "tmp", RUN=self.id, **variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self):
        """Its exit status, and the outcomes in its run file."""
        status = self.process.wait(120)
        until(lambda: not with_variable("RUN", self.id))
        return status, {
            test["key"]: test["outcome"]
            for test in json.loads((self.folder / "run.json").read_text())["tests"]
        }

    def recorded(self):
        return set(
            json.loads((self.folder / "__tfperf__" / "test_hangs.json").read_text())["tests"]
        )

    def text(self):
        return (self.folder / "output").read_text()

    def left(self):
        """Temporary files outside of pytest's own folder, but for the files that are locked, and what is half-written."""
        known = (
            "pytest-of-",
            "tfperf-locks-",
            "__autograph_generated_file",
            "__pycache__",
        )  # the last two are TensorFlow's, whose process is killed: code of AutoGraph, as Python caches it
        temporary = [
            file.name for file in (self.folder / "tmp").iterdir() if not file.name.startswith(known)
        ]
        return temporary + [
            file.name for file in self.folder.rglob(".*.*") if file.parent.name != "tmp"
        ]


@pytest.mark.parametrize(
    ("how", "arguments", "variables"),
    [
        ("killed", ["-p", "xdist", "-n2"], {}),
        ("Ctrl-C", ["-p", "xdist", "-n2"], {}),
        ("Ctrl-C", [], {}),
        ("Ctrl-C", [], {"OWN": "1"}),
    ],
    ids=["a worker is killed", "Ctrl-C with workers", "Ctrl-C", "Ctrl-C with an own process"],
)
def test_what_ends_in_a_traced_window_leaves_nothing_and_the_rest_is_reported(
    hanging, how, arguments, variables
):
    run = hanging(*arguments, **variables)
    if how == "killed":
        os.kill(run.pid, signal.SIGKILL)
    else:
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
    status, outcomes = run.ended()
    everything = {"test_before", "test_hangs", *(f"test_after[{n}]" for n in range(3))}
    if how == "killed":
        assert (status, set(outcomes)) == (
            pytest.ExitCode.TESTS_FAILED,
            everything - {"test_hangs"},
        ), run.text()
        assert "crashed while running 'test_hangs.py::test_hangs'" in run.text()
    else:
        assert status == pytest.ExitCode.INTERRUPTED, run.text()
        assert {"test_before"} <= set(outcomes) < everything - {"test_hangs"}, run.text()
        assert "KeyboardInterrupt" in run.text()
    assert "INTERNALERROR" not in run.text()
    assert set(outcomes.values()) == {"passed"}
    assert run.recorded() == set(outcomes)
    assert run.left() == []
    run.process = run.start()  # and no lock: this measures at once
    status, outcomes = run.ended()
    assert (status, set(outcomes)) == (pytest.ExitCode.OK, everything), run.text()
    assert run.recorded() == everything
