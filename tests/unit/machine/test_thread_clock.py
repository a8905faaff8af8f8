"""The clock that tells standing still from running."""

import time

from pytest_tfperf.machine.thread_clock import ThreadClock


def test_a_thread_stands_still_while_it_sleeps():
    clock = ThreadClock()
    clock.start()
    time.sleep(0.05)
    seconds, stood_s = clock.stop()
    assert 0.04 < stood_s <= seconds


def test_a_thread_does_not_stand_still_while_it_runs():
    clock, begun = ThreadClock(), time.thread_time()
    clock.start()
    while time.thread_time() < begun + 0.02:
        pass
    seconds, stood_s = clock.stop()
    assert stood_s < 0.005 < seconds
