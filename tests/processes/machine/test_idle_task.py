"""The idle task beside turns, in real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import state, until

from pytest_tfperf.machine import conditions
from pytest_tfperf.machine.conditions import core_kept_awake
from pytest_tfperf.machine.cores import pinnable_cores, pinned

pytestmark = [
    pytest.mark.usefixtures("processes"),
    pytest.mark.skipif(
        not hasattr(os, "SCHED_IDLE"), reason="the scheduling policy of idle tasks is Linux's"
    ),
]
QUOTA = {
    "proc/self/cgroup": "0::/box\n",
    "sys/fs/cgroup/box/cpu.stat": "usage_usec 9\nnr_periods 12\nnr_throttled 3\n",
}


@pytest.fixture
def one_core():
    with pinned(pinnable_cores()[-1:]):
        yield


def children(parent=None):
    """Process ids of the children of a process."""
    parent = os.getpid() if parent is None else parent
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return {int(child) for child in listed.split()}


def policy(process):
    return os.sched_getscheduler(process)


def test_task_of_the_lowest_priority_runs_in_the_group_within_the_context(one_core):
    before = children()
    with core_kept_awake():
        (task,) = children() - before
        until(lambda: policy(task) == os.SCHED_IDLE)
        assert os.getpgid(task) == os.getpgrp()
        assert os.sched_getaffinity(task) == os.sched_getaffinity(0)
        used = Path(f"/proc/{task}/schedstat")
        begin = int(used.read_text().split()[0])
        until(lambda: int(used.read_text().split()[0]) > begin + 5e7)  # it runs while this waits
    assert children() == before


@pytest.mark.full
def test_task_ends_after_an_error(one_core):
    before = children()
    with pytest.raises(ZeroDivisionError), core_kept_awake():
        raise ZeroDivisionError
    assert children() == before


@pytest.mark.full
def test_processes_of_several_cores_have_no_task(monkeypatch):
    monkeypatch.setattr(conditions, "pinnable_cores", lambda: (0, 1))
    before = children()
    with core_kept_awake():
        assert children() == before


@pytest.mark.full
def test_task_does_not_use_up_a_quota(one_core, tmp_path):
    for path, text in QUOTA.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    before = children()
    with core_kept_awake(tmp_path):
        assert children() == before


@pytest.mark.full
def test_turns_go_on_where_no_process_can_be_started(one_core, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with core_kept_awake():
        pass


@pytest.mark.full
def test_task_ends_with_a_process_that_is_killed():
    script = "\n".join(
        [
            "import os, time",
            "from pytest_tfperf.machine.conditions import core_kept_awake",
            "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])",
            "with core_kept_awake():",
            "    time.sleep(100)",
        ]
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: children(process.pid))
        (task,) = children(process.pid)
        until(lambda: policy(task) == os.SCHED_IDLE)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not state(task))
