"""Locks that end with their process; processes here report their actions line by line."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.files import own_lock_folder
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
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)


def test_free_lock_is_taken_silently():
    log = []
    with held(["cpu"], log.append, Watch(log)) as waited:
        assert waited is False
        assert log == ["stands still", "runs"]


def test_timers_pause_while_waiting():
    log = []
    with flock("cpu") as give_back:

        def announce(text):
            log.append(text)
            give_back()

        with held(["cpu"], announce, Watch(log), Watch(log)) as waited:
            assert waited is True
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
    assert lines(second, 1)[0].startswith(f"{WAITING} (process {first.pid}: ")
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
    lock_file("gpu-0").parent.mkdir()
    lock_file("gpu-1").mkdir()
    told = r"no lock that keeps other tests from measuring at the same time, in .*tfperf-locks-"
    with pytest.raises(CaptureError, match=told), held(["gpu-0", "gpu-1"], print):
        pass
    with held(["gpu-0"], print) as waited:
        assert waited is False


def test_uncreatable_lock_folder_is_an_error(temporary):
    lock_file("cpu").parent.write_text("a file")
    with (
        pytest.raises(CaptureError, match="no lock that keeps other tests from measuring"),
        held(["cpu"], print),
    ):
        pass


def test_a_file_system_without_locks_is_an_error(monkeypatch):
    for reason in (errno.ENOLCK, errno.EOPNOTSUPP):

        def refuse(*_, reason=reason):
            raise OSError(reason, os.strerror(reason))

        monkeypatch.setattr(fcntl, "flock", refuse)
        told = f"no lock that keeps other tests from measuring .*{os.strerror(reason)}"
        with pytest.raises(CaptureError, match=told), held(["cpu"], print):
            pass


def test_a_wait_is_bounded_and_names_the_holder(holder):
    first = holder("cpu")
    assert lines(first, 1) == ["held False"]
    told = rf"another process \(process {first.pid}: .*\) has measured for \d+ s, and this one must not"
    with pytest.raises(CaptureError, match=told) as refused, held(["cpu"], print, patience_s=0.2):
        pass
    assert refused.value.__suppress_context__, "the lines of filelock would hide the message"


def test_locks_are_for_this_user_only(temporary):
    before = os.umask(0)
    try:
        with held(["cpu"], print):
            folder = lock_file("cpu").parent
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert {stat.S_IMODE(path.stat().st_mode) & 0o022 for path in folder.iterdir()} <= {
                0,
                0o022,
            }
            assert stat.S_IMODE(lock_file("cpu").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_folder_that_others_can_enter_is_closed(temporary):
    folder = lock_file("cpu").parent
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with held(["cpu"], print):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("taken", ["link", "other user"])
def test_a_folder_that_was_taken_is_not_used(temporary, tmp_path, monkeypatch, taken):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = lock_file("cpu").parent
    (tmp_path / "victim").mkdir()
    if taken == "link":
        folder.symlink_to(tmp_path / "victim")
    elif os.getuid() == 0:
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("only root can make the folder of another user")
    with ExitStack() as stack:
        with pytest.warns(UserWarning, match="is a link, or belongs to another user; locks are in"):
            waited = stack.enter_context(held(["cpu"], print))
        assert waited is False
        assert (tmp_path / "cache/pytest-tfperf/locks").is_dir()
    assert list((tmp_path / "victim").iterdir()) == []
    assert list(folder.iterdir()) == []


@contextmanager
def strict():
    """Warnings as errors, with the list of those that are shown."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("error")
        yield shown


def is_free(name):
    with lock_file(name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_holder_that_cannot_be_named_is_a_warning_and_the_lock_is_held(temporary):
    holder = lock_file("cpu").with_name(f"{lock_file('cpu').name}.holder")
    holder.mkdir(parents=True)
    with strict() as shown, held(["cpu"], print) as waited:
        assert waited is False
        assert not is_free("cpu")
    assert is_free("cpu")
    assert [str(one.message) for one in shown] == [
        f"tfperf: others that wait for this process cannot name it: {holder}: Is a directory"
    ]


def test_the_holder_is_named_by_the_whole_name_of_the_lock(monkeypatch, temporary):
    for host in ("node.one", "node.other"):
        monkeypatch.setattr("platform.node", lambda host=host: host)
        with held(["cpu"], print):
            pass
    names = {path.name for path in lock_file("cpu").parent.iterdir()}
    assert {"node.one-cpu.holder", "node.other-cpu.holder"} <= names


def without_home(monkeypatch):
    def home(_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(home))


CACHES = {
    "no home": without_home,
    "no folder can be made": lambda patch: patch.setenv("XDG_CACHE_HOME", "/proc/none"),
    "a file": lambda patch: patch.setenv("XDG_CACHE_HOME", __file__),
}


@pytest.mark.parametrize("cache", CACHES.values(), ids=CACHES)
def test_without_a_cache_the_locks_are_in_another_temporary_folder(temporary, monkeypatch, cache):
    cache(monkeypatch)
    lock_file("cpu").parent.symlink_to("elsewhere")
    (temporary / f"{lock_file('cpu').parent.name}-0").symlink_to(temporary)  # also taken
    folders = []
    for _ in range(2):
        with strict() as shown, held(["cpu"], print) as waited:
            assert waited is False
            folders.append(own_lock_folder())
            assert stat.S_IMODE(folders[-1].stat().st_mode) == 0o700
        assert {str(one.message) for one in shown} == {
            f"{lock_file('cpu').parent} is a link, or belongs to another user; locks are in "
            f"{folders[-1]} instead"
        }
    assert folders[0] == folders[1], "processes of one user find the same locks"
    assert folders[0].parent == temporary
    assert not folders[0].is_symlink()


def test_a_relative_folder_of_the_cache_is_not_used(temporary, monkeypatch):
    monkeypatch.chdir(temporary)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(temporary / "home"))
    lock_file("cpu").parent.symlink_to("elsewhere")
    with strict(), held(["cpu"], print):
        assert (temporary / "home/.cache/pytest-tfperf/locks").is_dir()
    assert not (temporary / "cache").exists()


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
    assert lock_file("gpu-MIG-GPU-8932/1/2").name == "host_1-gpu-MIG-GPU-8932_1_2"


def test_a_lock_of_a_long_name_has_a_file_of_its_own(temporary):
    """As that of a worker whose host has a name of 250 characters."""
    names = ["profiler-" + "x" * 250 + f":{port}" for port in (1, 2)]
    with held(names, print) as waited:
        assert waited is False
    assert len({lock_file(name) for name in names}) == 2
