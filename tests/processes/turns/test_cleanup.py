"""The cleanup process: folder and processes are gone afterwards, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import state, until

from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns.cleanup import Cleanup

pytestmark = pytest.mark.usefixtures("processes")

IDLE = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def idle():
    processes = [subprocess.Popen(IDLE, start_new_session=True) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.full
def test_close_removes_the_folder_and_kills_watched_groups(cleanup, idle):
    one, other = idle
    (cleanup.folder / "deep" / "er").mkdir(parents=True)
    (cleanup.folder / "deep" / "file").write_text("")
    cleanup.watch(one.pid)
    cleanup.watch(other.pid)
    cleanup.forget(other.pid)
    os.killpg(one.pid, signal.SIGSTOP)
    cleanup.close()
    cleanup.close()
    assert one.wait(20) == -signal.SIGKILL
    assert other.poll() is None
    assert not cleanup.folder.exists()


@pytest.mark.full
def test_a_fork_of_the_owner_does_not_delay_the_cleanup(cleanup):
    pipe = cleanup._process.stdin.fileno()
    forked = subprocess.Popen(
        IDLE, pass_fds=[pipe]
    )  # as a worker of multiprocessing has it, which is forked
    try:
        cleanup.close()
        assert not cleanup.folder.exists()
    finally:
        forked.kill()
        forked.wait()


@pytest.mark.full
def test_a_group_may_have_ended_by_itself(cleanup):
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    cleanup.watch(process.pid)
    process.wait()
    cleanup.close()
    assert not cleanup.folder.exists()


@pytest.mark.full
def test_close_does_the_work_of_a_killed_cleanup_process(cleanup, idle):
    one, other = idle
    cleanup.watch(one.pid)
    cleanup._process.kill()
    cleanup._process.wait()
    cleanup.watch(other.pid)
    cleanup.close()
    assert (one.wait(20), other.wait(20)) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not cleanup.folder.exists()


OWNER = """
import subprocess, sys, time
from pytest_tfperf.turns.cleanup import Cleanup

cleanup = Cleanup()
process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
cleanup.watch(process.pid)
print(cleanup.folder, process.pid, cleanup.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_owner_leaves_nothing():
    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
        ) as owner:
            folder, *pids = owner.stdout.readline().split()
            assert Path(folder).is_dir()
            owner.send_signal(number)
            owner.wait()
        until(lambda folder=folder: not Path(folder).exists())
        until(lambda pids=pids: not any(map(state, pids)))


@pytest.mark.full
def test_no_folder_is_left_if_the_cleanup_process_cannot_start(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    with pytest.raises(PairedError, match=r"the cleanup process cannot be started: .*No such file"):
        Cleanup()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(PairedError, match=r"no temporary folder can be created: .*No such file"):
        Cleanup()
