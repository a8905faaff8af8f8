import sys
import threading

import pytest

from pytest_tfperf.machine.thread_times import any_ran, cpu_ns


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
