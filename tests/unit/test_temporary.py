"""Temporary folders: those of living processes stay, those of others are removed."""

import errno
import os
import stat
import tempfile
import time

import pytest

from pytest_tfperf import temporary as module
from pytest_tfperf.files import replace_file
from pytest_tfperf.temporary import MARK, TemporaryFolder, remove_left

fcntl = pytest.importorskip("fcntl")


def left(parent, name=".tfperf-tmp-0123abcd", mark="*\n"):
    """A folder as a killed process leaves it."""
    folder = parent / name
    (folder / "run").mkdir(parents=True)
    (folder / "0").write_text("half")
    (folder / "run" / "trace").write_text("half")
    if mark is not None:
        (folder / MARK).write_text(mark)
    return folder


def age(folder, seconds):
    then = time.time() - seconds
    os.utime(folder, (then, then))


def test_a_folder_is_there_until_it_is_closed(tmp_path):
    with TemporaryFolder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / MARK).read_text() == "*\n"
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "file").write_text("")
        (folder / "link").symlink_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_or_after_another_process_has_removed_it_is_fine(tmp_path):
    one = TemporaryFolder(tmp_path)
    one.release()
    (one.path / MARK).unlink()
    one.path.rmdir()
    one.close()
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_in_the_folder_of_temporary_files_names_are_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TemporaryFolder() as folder:
        assert folder.name.startswith("tfperf-tmp-")
    with TemporaryFolder(tmp_path) as folder:
        assert folder.name.startswith(".tfperf-tmp-")


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    for name in [".tfperf-tmp-0123abcd", "tfperf-tmp-0123abcd"]:
        for mark in ["*\n", ""]:
            left(tmp_path, name, mark)
            replace_file(tmp_path / "file.json", "new")
            assert list(tmp_path.iterdir()) == [tmp_path / "file.json"], (name, mark)


def test_a_process_looks_once_into_a_folder_that_may_hold_thousands(tmp_path):
    TemporaryFolder(tmp_path, crowded=True).close()
    folder = left(tmp_path)
    TemporaryFolder(tmp_path, crowded=True).close()
    assert folder.exists()


def test_an_empty_folder_of_a_process_killed_at_once_is_removed(tmp_path):
    (tmp_path / ".tfperf-tmp-0123abcd").mkdir()
    remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_living_process_stays(tmp_path):
    with TemporaryFolder(tmp_path) as first, TemporaryFolder(tmp_path) as second:
        (first / "0").write_text("half")
        remove_left(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
        assert (first / "0").read_text() == "half"


def test_what_has_another_name_stays(tmp_path):
    for name in [
        ".tfperf-tmp-0123abc",
        "tfperf-locks-0",
        ".tfperf-tmp-0123ABCD",
        "tfperf-0123abcd",
        "tmp",
    ]:
        folder = left(tmp_path, name)
        remove_left(tmp_path)
        assert folder.exists(), name


def test_a_link_of_that_name_is_not_followed(tmp_path):
    (tmp_path / "in").mkdir()
    folder = left(tmp_path, "kept")
    (tmp_path / "in" / ".tfperf-tmp-0123abcd").symlink_to(folder)
    remove_left(tmp_path / "in")
    assert (folder / "0").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_what_is_another_users_stays(tmp_path):
    folder = left(tmp_path)
    os.chown(folder, 65534, 65534)
    remove_left(tmp_path)
    assert (folder / "0").exists()


def test_a_folder_that_is_not_there_has_nothing_left(tmp_path):
    remove_left(tmp_path / "absent")


NO_LOCKS = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL]


def test_without_locks_a_folder_is_left_after_a_day(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(reason, os.strerror(reason))

    for reason in [*NO_LOCKS, None]:
        for seconds, stays in [(86_300, True), (86_500, False)]:
            parent = tmp_path / f"{reason}_{seconds}"
            folder = left(parent)
            age(folder, seconds)
            with monkeypatch.context() as patch:
                if reason is None:
                    patch.setattr(module, "fcntl", None)  # as on Windows
                else:
                    patch.setattr(fcntl, "flock", refuse)
                with TemporaryFolder(parent) as own:
                    assert folder.exists() == stays, (reason, seconds)
                    assert own.exists(), (reason, seconds)
            assert list(parent.iterdir()) == [folder] * stays, (reason, seconds)


def test_a_folder_with_something_in_it_and_no_mark_is_not_ours(tmp_path):
    folder = left(tmp_path, mark=None)
    age(folder, 86_500)
    remove_left(tmp_path)
    assert (folder / "0").exists()


@pytest.mark.parametrize("moment", ["not marked", "not locked", "locked by the other"])
def test_a_folder_that_was_taken_for_one_that_was_left_is_made_again(tmp_path, monkeypatch, moment):
    """Another process removes it at the worst moments."""
    taken, opened, locked = [], os.open, module._lock

    def take(folder):
        taken.append(folder)
        (folder / MARK).unlink(missing_ok=True)
        folder.rmdir()

    def opening(path, *rest, **options):
        if not taken and moment == "not marked":
            take(next(tmp_path.iterdir()))
        return opened(path, *rest, **options)

    def locking(mark, alone):
        if not taken and not alone and moment != "not marked":
            take(next(tmp_path.iterdir()))
            if moment == "locked by the other":
                raise BlockingIOError
        return locked(mark, alone)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(module, "_lock", locking)
    with TemporaryFolder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert len(taken) == 1
        assert (folder / MARK).read_text() == "*\n"


def test_a_folder_that_cannot_be_emptied_keeps_its_mark(tmp_path, monkeypatch):
    """Else git would see what is in it, and no later run could tell whose it is."""
    one = TemporaryFolder(tmp_path)
    (one.path / "0").write_text("half")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_clear", lambda *_: None)
        one.close()
    assert sorted(path.name for path in one.path.iterdir()) == [MARK, "0"]
    remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exchanged", ["link", "folder"])
def test_a_folder_that_somebody_exchanged_is_left_alone(tmp_path, exchanged):
    """Who may write beside it may put a link to another folder of this user in its place."""
    home = tmp_path / "home"
    (home / "thesis").mkdir(parents=True)
    (home / ".gitignore").write_text("*")
    parent = tmp_path / "shared"
    parent.mkdir()
    temporary = TemporaryFolder(parent)
    temporary.path.rename(parent / "away")
    if exchanged == "link":
        temporary.path.symlink_to(home)
    else:
        home.rename(temporary.path)
        home = temporary.path
    temporary.close()
    assert sorted(path.name for path in home.iterdir()) == [".gitignore", "thesis"]


def test_a_link_named_as_a_left_folder_is_not_followed(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitignore").write_text("*")
    (home / "thesis").write_text("years")
    parent = tmp_path / "shared"
    parent.mkdir()
    (parent / ".tfperf-tmp-0123abcd").symlink_to(home)
    TemporaryFolder(parent).close()
    assert sorted(path.name for path in home.iterdir()) == [".gitignore", "thesis"]


def test_links_within_a_folder_are_removed_and_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("here")
    with TemporaryFolder(tmp_path) as folder:
        (folder / "deep" / "deeper").mkdir(parents=True)
        (folder / "deep" / "deeper" / "file").write_text("there")
        (folder / "deep" / "link").symlink_to(kept)
        (folder / "link").symlink_to(kept / "file")
    assert not folder.exists()
    assert (kept / "file").read_text() == "here"


def deep(folder, depth):
    """A folder below others, deeper than Python calls itself and than a path may be long."""
    opened = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=opened)
        below = os.open("deep", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(os.open("file", os.O_CREAT, dir_fd=opened))
    os.close(opened)


@pytest.mark.full
def test_a_folder_may_be_deeper_than_python_calls_itself(tmp_path):
    with TemporaryFolder(tmp_path) as folder:
        deep(folder, 3000)
    assert list(tmp_path.iterdir()) == []
    deep(left(tmp_path), 3000)
    remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_keeps_the_mark_and_hinders_nothing_else(tmp_path, monkeypatch):
    def refuse(name, *, dir_fd=None):
        if name == "fixed":
            raise PermissionError(errno.EPERM, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    unlink = os.unlink
    one = TemporaryFolder(tmp_path)
    for name in ("a", "b/c"):
        (one.path / name).mkdir(parents=True)
        (one.path / name / "file").write_text("")
    (one.path / "b/c/fixed").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        one.close()
    assert [path.name for path in one.path.rglob("*") if path.is_file()] == [MARK, "fixed"]
    remove_left(tmp_path)
    assert list(tmp_path.iterdir()) == []
