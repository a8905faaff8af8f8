"""Remedies in processes of their own: what hangs or dies there is stopped, and environments are changed."""

import json

import pytest
from helpers.git_repository import commit, git

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

PLANTED = """
import os
import signal
import time
from pathlib import Path
from pytest_tfperf.remedies import process, trial
from pytest_tfperf.remedies.remedy import Call, Remedy

HERE = Path(__file__).parent
process.REMEDIES = ()
x = tf.random.stateless_uniform((50, 50), (1, 2))

class Planted(Remedy):
    kind = "step"

    def __init__(self, name, run):
        self.name, self._run = name, run

    def applies(self, call):
        return True

    def apply(self, call):
        return Call(step=self._run, data=call.data)

def harmless(*_):
    return tf.reduce_sum(x @ x)

def hangs(*_):
    while True:
        pass

def deadlock(*_):
    queue = tf.queue.FIFOQueue(1, [tf.int64], [[]])
    never = tf.data.Dataset.range(1).map(lambda n: queue.dequeue() + n)
    return next(iter(never))

def dies(*_):
    os.kill(os.getpid(), signal.SIGABRT)

def takes_all_memory(*_):
    (HERE / "memory is short").touch()
    time.sleep(600)

@pytest.mark.tfperf(max_step_time="1 ns")
def test_step(tf_profile):
    tf_profile(harmless, warmup=2, steps=5, trace_steps=5)

"""


def rows_of(suite):
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    table = test["profiles"][0]["tables"]["remedies"]
    keys = [column["key"] for column in table["columns"]]
    return {row[0]: dict(zip(keys, row, strict=True)) for row in table["rows"]}


@pytest.fixture
def short_limit(suite, monkeypatch):
    """A remedy may take ten seconds of as many as the starts of processes need; memory is short where a file says so."""
    shortage = suite.path / "memory is short"

    def available():
        if not shortage.exists():
            return 1 << 40
        shortage.unlink()
        return 0

    monkeypatch.setattr("pytest_tfperf.remedies.apart._LIMIT_SHARE", 0.01)
    monkeypatch.setattr("pytest_tfperf.remedies.apart._LEAST_LIMIT_S", 10.0)
    monkeypatch.setattr("pytest_tfperf.remedies.apart.available_bytes", available)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        pytest.param("hangs", "was stopped after 10 s", marks=pytest.mark.nightly),
        ("deadlock", "was stopped after 10 s"),
        pytest.param("dies", "ended its process with SIGABRT", marks=pytest.mark.nightly),
        pytest.param(
            "takes_all_memory",
            "was stopped as the memory of the machine ran short",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_does_not_end_is_stopped_and_the_rest_goes_on(suite, short_limit, run, why):
    planted = f'trial.REMEDIES = Planted("bad", {run}), Planted("good", tf.function(harmless))\n'
    suite.write(PLANTED + planted)
    result = suite("--tfperf-try", "-o", "tfperf_try_seconds=600", "--tfperf-report=run.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*above the limit of 1 ns*", f"    bad: {why}"])
    rows = rows_of(suite)
    assert rows["bad"]["why"] == why
    assert rows["good"]["outputs"] in ("same", "within tolerance")
    assert rows["good"]["speedup"] > 0


def test_what_was_measured_stays_where_remedies_hang_together(suite, short_limit):
    suite.write(
        PLANTED
        + """
y = tf.ones((300, 300))

class OfInput(Planted):
    kind = "input"

class OfStep(Planted):
    def apply(self, call):
        return Call(step=hangs if call.step is half else self._run, data=call.data)

def slow(*_):
    [y @ y for _ in range(20)]
    return x

def half(*_):
    [y @ y for _ in range(10)]
    return x

trial.REMEDIES = OfInput("half", half), OfStep("quick", lambda *_: x)

@pytest.mark.tfperf(max_step_time="1 ns")
def test_step(tf_profile):
    tf_profile(slow, warmup=2, steps=5, trace_steps=5)
"""
    )
    suite("--tfperf-try", "-o", "tfperf_try_seconds=600", "--tfperf-report=run.json")
    rows = rows_of(suite)
    assert list(rows) == ["quick", "half", "half and quick"]
    assert rows["half and quick"]["why"] == "was stopped after 10 s"
    assert rows["quick"]["low"] > rows["half"]["low"] > 1


def test_an_unchanged_step_that_hangs_there_leaves_the_verdict_as_it_is(suite):
    hangs_there = """
import sys

def in_child():
    return any(argument.startswith("--tfperf-child") for argument in sys.orig_argv)

def hangs_in_children():
    return hangs() if in_child() else harmless()

trial.REMEDIES = ()

@pytest.mark.tfperf(max_step_time="1 ns")
def test_step(tf_profile):
    tf_profile(hangs_in_children, warmup=2, steps=5, trace_steps=5)
"""
    suite.write(PLANTED + hangs_there)
    result = suite("--tfperf-try", "-o", "tfperf_try_seconds=5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*above the limit*", "*the unchanged step was stopped after*"])


ONE_REMEDY = PLANTED + 'trial.REMEDIES = (Planted("good", tf.function(harmless)),)\n'
ONE_THREAD = PLANTED.replace("process.REMEDIES = ()", "process.REMEDIES = (process.AllCores(),)")


@pytest.mark.nightly
def test_pools_that_code_makes_small_have_a_thread_for_each_core_in_a_process_of_their_own(
    suite, pytester
):
    suite.write(ONE_THREAD + "trial.REMEDIES = ()")
    pytester.makeconftest(
        "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(1)"
    )
    options = "-p", "no:cacheprovider", "-W", "ignore", "--tfperf-report=run.json"
    pytester.runpytest_subprocess("--tfperf-try", "-otfperf_try_seconds=600", *options)
    row = rows_of(suite)["thread pools with a thread for each core"]
    assert row["outputs"] in ("same", "within tolerance"), row
    assert row["write"] == "without tf.config.threading.set_inter_op_parallelism_threads"


@pytest.mark.nightly
def test_workers_try_remedies_too(suite, pytester):
    suite.write(ONE_REMEDY)
    options = "-p", "no:cacheprovider", "-W", "ignore", "--tfperf-report=run.json"
    pytester.runpytest_subprocess("-n2", "--tfperf-try", "-otfperf_try_seconds=600", *options)
    assert rows_of(suite)["good"]["outputs"] in ("same", "within tolerance")


@pytest.mark.nightly
def test_the_working_tree_is_tried_after_its_verdict_against_a_ref(suite, pytester):
    suite.write(ONE_REMEDY)
    git(suite.path, "init", "-q")
    commit(suite.path, "first", {})
    options = "-p", "no:cacheprovider", "-W", "ignore", "--tfperf-report=run.json"
    result = pytester.runpytest_subprocess(
        "--tfperf-against=HEAD", "--tfperf-try", "-otfperf_try_seconds=600", *options
    )
    result.assert_outcomes(failed=1)
    assert rows_of(suite)["good"]["outputs"] in ("same", "within tolerance")
