"""Traces of TensorFlow's own profiler server, which serves this process while a thread trains."""

import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf
from helpers.paths import TESTS
from helpers.profiler_server import answers, serving

from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import CaptureError

PAUSE_S = 0.005


@pytest.fixture(scope="module")
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        found = one.getsockname()[1]
    tf.profiler.experimental.server.start(found)  # for as long as this process lives
    return found


@pytest.fixture(scope="module")
def job(port):
    """Address of a server whose process runs steps of 5 ms or more."""
    weights, ended = tf.Variable(tf.ones((64, 64))), threading.Event()

    @tf.function
    def step(x):
        return tf.reduce_sum(tf.matmul(x, weights))

    def train():
        for n in range(10**9):
            if ended.is_set():
                break
            with tf.profiler.experimental.Trace("train", step_num=n, _r=1):
                step(tf.ones((64, 64)))
                time.sleep(PAUSE_S)

    thread = threading.Thread(target=train)
    thread.start()
    yield f"grpc://127.0.0.1:{port}"
    ended.set()
    thread.join()


def test_steps_of_a_running_job_are_traced(job, tmp_path, capsys):
    assert main(["capture", job, "--ms", "300", "-o", str(tmp_path), "--json"]) == 0
    [trace] = json.loads(capsys.readouterr().out)["traces"]
    assert main(["analyze", trace, "--json"]) == 0
    [profile] = json.loads(capsys.readouterr().out)["profiles"]
    assert profile["steps"]
    assert profile["metrics"]["retraces"]["value"] == 0


@pytest.mark.parametrize(("level", "shown"), [("0", False), ("1", True)])
def test_the_server_keeps_to_the_levels(job, tmp_path, capsys, level, shown):
    words = ["--ms", "100", "-o", str(tmp_path), "--python-tracer-level", level, "--json"]
    assert main(["capture", job, *words]) == 0
    [trace] = json.loads(capsys.readouterr().out)["traces"]
    call = re.search(rb"\$[\w.<>]+(?:\.py:\d+| \w)", Path(trace).read_bytes())  # $script.py:12 name
    assert (call is not None) is shown


SUITE = """
import pytest

@pytest.mark.tfperf(max_retraces=0, max_step_time="10 s")
def test_passes(tf_profile):
    found = tf_profile.capture({address!r}, ms=200)
    assert found.step_time >= 0.005

def test_fails(tf_profile):
    tf_profile.capture({address!r}, ms=200, limits=dict(max_step_time="1 ms"))

def test_twice(tf_profile):
    for name in "ab":
        tf_profile.capture({address!r}, ms=100, name=name, limits=dict(max_retraces=0))
    assert list(tf_profile.profiles) == ["a", "b"]

def test_nobody_serves(tf_profile):
    tf_profile.capture("localhost:1", ms=100)
"""


def test_limits_decide_a_running_job(job, pytester, processes):
    pytester.makepyfile(SUITE.format(address=job))
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--tfperf-report=run.json", "--tfperf-trace-dir=traces"
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*step_time is * ms, above the limit of 1 ms (max_step_time='1 ms')*",
            "*CaptureError: localhost:1: cannot be reached: *is the job running*",
        ]
    )
    tests = json.loads((pytester.path / "run.json").read_text())["tests"]
    assert [len(test["profiles"]) for test in tests] == [1, 1, 2, 0]
    assert len(list((pytester.path / "traces").rglob("*.xplane.pb"))) >= 3


@pytest.mark.full
def test_counts_of_a_running_job_have_a_baseline(job, pytester, processes):
    pytester.makepyfile(SUITE.format(address=job))
    options = ("-p", "no:cacheprovider", "-k", "passes")
    pytester.runpytest_inprocess("--tfperf-update", *options).assert_outcomes(passed=1)
    result = pytester.runpytest_inprocess("--tfperf-baseline", *options)
    result.assert_outcomes(passed=1)


def test_a_process_that_runs_nothing_is_named(port, tmp_path, capsys):
    words = ["--ms", "50", "-o", str(tmp_path), "--attempts", "1", "--host-tracer-level", "0"]
    assert main(["capture", f"127.0.0.1:{port}", *words]) == 2
    assert "nothing ran in 50 ms" in capsys.readouterr().err


def test_a_trace_without_a_step_is_an_error(profile):
    trace = (TESTS / "data/traces/d1_tfdata.xplane.pb").read_bytes()
    message = r"no step found.*; trace longer with ms="
    with serving(answers(trace)) as server, pytest.raises(CaptureError, match=message):
        profile.capture(server.address, ms=1)
    assert profile.profiles == {}


def test_each_worker_of_several_has_a_profile(profile, processes):
    names = ("c1_cpu_basic", "c5_seven")
    traces = [(TESTS / f"data/traces/{name}.xplane.pb").read_bytes() for name in names]
    with serving(answers(traces[0])) as one, serving(answers(traces[1])) as two:
        first = profile.capture(f"{one.address},{two.address}", ms=1, name="job")
    assert list(profile.profiles) == [f"job 127.0.0.1:{port}" for port in (one.port, two.port)]
    assert [len(found.steps) for found in profile.profiles.values()] == [3, 7]
    assert profile.profiles[first.name] is first
    assert first.value("step_skew").number is not None


def test_a_name_that_is_taken_is_refused_before_anything_is_traced(profile):
    trace = (TESTS / "data/traces/c1_cpu_basic.xplane.pb").read_bytes()
    with serving(answers(trace)) as server:
        profile.capture(server.address, ms=1, name="job")
        with pytest.raises(CaptureError, match="has a profile named 'job' already"):
            profile.capture(server.address, ms=1, name="job")
        assert len(server.requests) == 1
        profile.capture(server.address, ms=1)
        profile.capture(server.address, ms=1)
    assert list(profile.profiles) == ["job", "", "2"]
