"""A step that never returns, under a time limit of pytest-timeout: its line is shown, and the next test is measured."""

import re

import pytest

BODY = """
import itertools
import os
import signal
import threading

N_CALLS = 1 + 3 + 12 + 6 + 1 + 3  # first, warm-up, timed, traced, probe, counted

@tf.function
def double(x):
    return 2 * x

def deadlock():
    # the time limit is over at once: its signal comes while the step waits
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGALRM)).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def profiled(tf_profile, n=0):
    calls = itertools.count(1)

    def step(x):
        if next(calls) == n:
            deadlock()
        return double(x)

    tf_profile(step, DATA * 10, warmup=3, steps=12, trace_steps=6, limits={"max_python_calls": 10**9})
    return next(calls) - 1

@pytest.mark.parametrize("n", range(1, N_CALLS + 1, 3))
def test_dead(tf_profile, n):
    profiled(tf_profile, n)

def test_next(tf_profile):
    assert profiled(tf_profile) == N_CALLS
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments", [(), pytest.param(("--tfperf-report=run.json",), marks=pytest.mark.nightly)]
)
def test_a_deadlock_in_each_window(suite, arguments, processes):
    suite.write(BODY)
    result = suite("-p", "timeout", "--timeout=300", *arguments)
    result.assert_outcomes(failed=9, passed=1)
    shown = "\n".join(result.outlines)
    blocked = re.findall(r">       lock\.acquire\(\)\nE       Failed: Timeout \(>300\.0s\)", shown)
    assert len(blocked) == 9
    assert "tfperf: " in shown
