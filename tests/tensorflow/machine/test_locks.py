"""Locks that end with their process; processes here report their actions line by line."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.machine.locks import device_names, held, lock_file, measuring_anyway

fcntl = pytest.importorskip("fcntl")

HOLDER = """
import sys
from pytest_tfperf.machine.locks import held

def say(text):
    print(text, flush=True)

with held(sys.argv[1:], lambda text: say(f"announce {text}")) as waited:
    say(f"held {waited}")
    sys.stdin.read()
say("over")
"""
WAITING = "announce waiting until another test of this machine is measured"


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(temporary, processes):
    """Starts a process that holds locks until its stdin is closed."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:

        def start(*names):
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", HOLDER, *names], env=environment, **pipes)
            )
            stack.callback(process.kill)
            return process

        yield start


def lines(process, n):
    return [process.stdout.readline().strip() for _ in range(n)]


class Watch:
    def __init__(self, log):
        self.log = log

    @contextmanager
    def paused(self):
        self.log.append("stands still")
        yield
        self.log.append("runs")


@contextmanager
def flock(name):
    """Hold a lock in another process; return a function that ends it."""
    path = lock_file(name)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)


def test_free_lock_is_taken_silently():
    log = []
    with held(["cpu"], log.append, Watch(log)) as waited:
        assert waited is False
        assert log == ["stands still", "runs"]


def test_timers_pause_while_waiting():
    log, waits_s = [], []
    with flock("cpu") as give_back:

        def announce(text):
            log.append(text)
            give_back()

        with held(["cpu"], announce, Watch(log), Watch(log), waits_s=waits_s) as waited:
            assert waited is True
    assert len(waits_s) == 1
    assert waits_s[0] >= 0
    assert log == [
        "stands still",
        "stands still",
        "waiting until another test of this machine is measured",
        "",
        "runs",
        "runs",
    ]


@pytest.mark.parametrize("ends", ["in order", pytest.param("kill -9", marks=pytest.mark.nightly)])
def test_second_process_measures_after_the_first_has_ended(holder, ends):
    first = holder("cpu")
    assert lines(first, 1) == ["held False"]
    second = holder("cpu")
    assert lines(second, 1)[0].startswith(f"{WAITING} (process {first.pid})")
    if ends == "kill -9":
        first.kill()
    else:
        first.stdin.close()
    assert lines(second, 2) == ["announce", "held True"]


def test_processes_that_share_a_device_wait_and_others_do_not():
    shared = "waiting until another test of this machine is measured"
    for names, said in ((["gpu-2"], []), (["gpu-1", "gpu-2"], [shared, ""])):
        log = []
        with flock("gpu-1") as give_back:

            def announce(text, log=log, give_back=give_back):
                log.append(text)
                give_back()

            with held(names, announce) as waited:
                assert waited is bool(said)
        assert log == said, names


def test_error_within_the_context_releases_the_lock():
    with pytest.raises(ZeroDivisionError), held(["cpu"], print):
        raise ZeroDivisionError
    with held(["cpu"], print) as waited:
        assert waited is False


def test_failure_of_one_lock_releases_the_others(temporary):
    lock_file("gpu-1").mkdir()
    told = rf"^no lock in {temporary}: .*; TMPDIR names another folder$"
    with pytest.raises(CaptureError, match=told), held(["gpu-0", "gpu-1"], print):
        pass
    with held(["gpu-0"], print) as waited:
        assert waited is False


def test_uncreatable_lock_folder_is_an_error(temporary):
    folder = lock_file("cpu").parent
    folder.rmdir()
    folder.write_text("a file")
    with pytest.raises(CaptureError, match=f"{folder} is not a folder"), held(["cpu"], print):
        pass


def test_a_file_system_without_locks_is_an_error(monkeypatch):
    for reason in (errno.ENOLCK, errno.EOPNOTSUPP):

        def refuse(*_, reason=reason):
            raise OSError(reason, os.strerror(reason))

        monkeypatch.setattr(fcntl, "flock", refuse)
        told = f"no lock in .*: {os.strerror(reason)}; TMPDIR"
        with pytest.raises(CaptureError, match=told), held(["cpu"], print):
            pass


def test_a_wait_is_bounded_and_names_the_holder(holder):
    first = holder("cpu")
    assert lines(first, 1) == ["held False"]
    told = rf"waited 0 s until another test .* \(process {first.pid}\): wait for its end, or stop"
    with pytest.raises(CaptureError, match=told) as refused, held(["cpu"], print, patience_s=0.2):
        pass
    assert refused.value.__suppress_context__, "the lines of filelock would hide the message"


def test_locks_are_for_this_user_only(temporary):
    before = os.umask(0)
    try:
        with held(["cpu"], print):
            folder = lock_file("cpu").parent
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_folder_that_others_can_enter_is_closed(temporary):
    folder = lock_file("cpu").parent
    folder.chmod(0o777)
    with held(["cpu"], print):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("taken", ["link", "other user"])
def test_a_folder_that_was_taken_is_said_and_not_used(tmp_path, taken):
    folder = lock_file("cpu").parent
    folder.rmdir()
    (tmp_path / "victim").mkdir()
    if taken == "link":
        folder.symlink_to(tmp_path / "victim")
    elif os.getuid() == 0:
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("only root can make the folder of another user")
    told = f"^no lock in {tmp_path}: {folder} is a link, or belongs to another user; TMPDIR names"
    with pytest.raises(CaptureError, match=told), held(["cpu"], print):
        pass
    assert list(folder.iterdir()) == []


def test_measuring_anyway_takes_no_lock():
    with flock("cpu"), measuring_anyway(print) as waited:
        assert waited is False


def test_locks_are_named_by_device():
    for n_gpus, visible, names in (
        (0, (), ("cpu",)),
        (0, ("0", "1"), ("cpu",)),  # TensorFlow without support for GPUs
        (1, ("3",), ("gpu-3",)),
        (2, ("1", "0"), ("gpu-0", "gpu-1")),
        (1, ("GPU-8932f937", "0"), ("gpu-GPU-8932f937",)),
        (2, (), ("gpu-0", "gpu-1")),  # of a system without device files
    ):
        assert device_names(n_gpus, visible) == names, (n_gpus, visible)


def test_lock_file_is_named_by_host_and_device(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "host/1")
    assert lock_file("gpu-MIG-GPU-8932/1/2").name.startswith("host_1-gpu-MIG-GPU-8932_1_2-")


def test_a_lock_of_a_long_name_has_a_file_of_its_own(temporary):
    """As that of a worker whose host has a name of 250 characters."""
    names = ["profiler-" + "x" * 250 + f":{port}" for port in (1, 2)]
    with held(names, print) as waited:
        assert waited is False
    assert len({lock_file(name) for name in names}) == 2
