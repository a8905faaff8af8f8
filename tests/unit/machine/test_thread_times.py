"""What threads did: standing still is told from running."""

import subprocess
import sys
import threading
import time

import pytest

from pytest_tfperf.machine.clocks import ThreadClock, any_ran, children_cpu_s, cpu_ns


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of a thread")
def test_a_thread_that_waits_did_not_run_and_one_that_was_asked_did():
    asked, answered = threading.Event(), threading.Event()

    def serve():
        while asked.wait() and not ended:
            asked.clear()
            answered.set()

    ended, thread = [], threading.Thread(target=serve)
    thread.start()
    asked.set()
    assert answered.wait(5)
    while (before := cpu_ns([thread.ident])) != cpu_ns([thread.ident]):
        pass  # until it waits
    assert [*before] == [thread.ident]
    assert not any_ran(before)
    answered.clear()
    asked.set()
    assert answered.wait(5)
    ended.append(True)
    asked.set()
    thread.join()
    assert any_ran(before)
    assert any_ran({1: None})


def test_a_thread_stands_still_while_it_sleeps():
    clock = ThreadClock()
    clock.start()
    time.sleep(0.05)
    seconds, stood_s = clock.stop()
    assert 0.04 < stood_s <= seconds


def test_a_thread_does_not_stand_still_while_it_runs():
    def run():
        clock, begun = ThreadClock(), time.thread_time()
        clock.start()
        while time.thread_time() < begun + 0.02:
            pass
        return clock.stop()

    found = [run() for _ in range(5)]  # a busy machine may hold a thread up once
    assert min(stood_s for _, stood_s in found) < 0.005 < min(seconds for seconds, _ in found)


SPINS = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(15, b"of\\xc3", 0, 0, 0)  # PR_SET_NAME, cut within a character
depth, program = int(sys.argv[1]), sys.argv[2]
command = [sys.executable, "-c", program, str(depth - 1), program]
child = subprocess.Popen(command, stdin=subprocess.PIPE) if depth else None
while time.process_time() < 0.3:
    pass
input()
if child:
    child.communicate(b"\\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of children")
def test_the_processor_time_of_living_children_and_theirs_is_counted(processes):
    command = [sys.executable, "-c", SPINS, "2", SPINS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while (found := children_cpu_s(process.pid)) < 0.58 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found >= 0.58  # of two; ticks of a hundredth of a second may be lost
    finally:
        process.communicate(b"\n")
    assert children_cpu_s(process.pid) is None
