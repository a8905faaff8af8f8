"""The janitor: what is held is gone afterwards, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import state, until

from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.errors import PairedError

IDLE = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def idle():
    processes = [subprocess.Popen(IDLE, start_new_session=True) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_all_is_gone_when_it_is_closed(janitor, idle):
    one, other = idle
    (janitor.folder / "deep" / "er").mkdir(parents=True)
    (janitor.folder / "deep" / "file").write_text("")
    janitor.watch(one.pid)
    janitor.watch(other.pid)
    janitor.forget(other.pid)
    os.killpg(one.pid, signal.SIGSTOP)
    janitor.close()
    janitor.close()
    assert one.wait(20) == -signal.SIGKILL
    assert other.poll() is None
    assert not janitor.folder.exists()


def test_what_was_forked_from_its_owner_does_not_keep_it_waiting(janitor):
    pipe = janitor._process.stdin.fileno()
    forked = subprocess.Popen(
        IDLE, pass_fds=[pipe]
    )  # as a worker of multiprocessing has it, which is forked
    try:
        janitor.close()
        assert not janitor.folder.exists()
    finally:
        forked.kill()
        forked.wait()


def test_a_group_that_has_ended_by_itself(janitor):
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    janitor.watch(process.pid)
    process.wait()
    janitor.close()
    assert not janitor.folder.exists()


def test_who_kills_the_janitor_does_not_keep_its_work_from_being_done(janitor, idle):
    one, other = idle
    janitor.watch(one.pid)
    janitor._process.kill()
    janitor._process.wait()
    janitor.watch(other.pid)
    janitor.close()
    assert (one.wait(20), other.wait(20)) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not janitor.folder.exists()


OWNER = """
import subprocess, sys, time
from pytest_tfperf.child.cleanup import Janitor

janitor = Janitor()
process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
janitor.watch(process.pid)
print(janitor.folder, process.pid, janitor._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_is_gone_when_its_owner_is_killed(number):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        folder, *pids = owner.stdout.readline().split()
        assert Path(folder).is_dir()
        owner.send_signal(number)
        owner.wait()
    until(lambda: not Path(folder).exists() and not any(state(pid) for pid in pids))


def test_without_a_process_that_waits_there_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    with pytest.raises(
        PairedError, match=r"the process that cleans up cannot be started: .*No such file"
    ):
        Janitor()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_there_is_no_janitor(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(PairedError, match=r"there can be no temporary folder: .*No such file"):
        Janitor()
