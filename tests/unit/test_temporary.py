"""Temporary folders: those that a killed process left are removed after a day, and nothing else."""

import os
import stat
import tempfile
import time

import pytest

from pytest_tfperf import temporary as module
from pytest_tfperf.temporary import TemporaryFolder


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(module, "_SWEPT", set())


def left(parent, name=".tfperf-tmp-0123abcd", seconds=86_500):
    """A folder as a killed process leaves it."""
    folder = parent / name
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "trace").write_text("half")
    then = time.time() - seconds
    os.utime(folder, (then, then))
    return folder


def test_a_folder_is_there_until_it_is_closed(tmp_path):
    with TemporaryFolder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".tfperf-tmp-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / ".gitignore").read_text() == "*\n"
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "file").write_text("")
        (folder / "link").symlink_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_is_fine(tmp_path):
    one = TemporaryFolder(tmp_path)
    one.close()
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_in_the_folder_of_temporary_files_names_are_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TemporaryFolder() as folder:
        assert folder.name.startswith("tfperf-tmp-")


def test_what_was_left_is_removed_after_a_day(tmp_path):
    for name in [".tfperf-tmp-0123abcd", "tfperf-tmp-_x23abcd"]:
        for seconds, stays in [(86_300, True), (86_500, False)]:
            parent = tmp_path / f"{name}-{seconds}"
            folder = left(parent, name, seconds)
            TemporaryFolder(parent).close()
            assert list(parent.iterdir()) == [folder] * stays, (name, seconds)


def test_a_process_looks_once_into_a_folder(tmp_path):
    TemporaryFolder(tmp_path).close()
    folder = left(tmp_path)
    TemporaryFolder(tmp_path).close()
    assert folder.exists()


def test_what_has_another_name_stays(tmp_path):
    for name in (
        ".tfperf-tmp-0123abc",
        "tfperf-locks-0",
        ".tfperf-tmp-0123ABCD",
        "tfperf-0123abcd",
        "tmp",
    ):
        folder = left(tmp_path / "in", name)
        module._SWEPT.clear()
        TemporaryFolder(tmp_path / "in").close()
        assert (folder / "run" / "trace").exists(), name


def test_a_link_of_that_name_is_not_followed(tmp_path):
    (tmp_path / "in").mkdir()
    folder = left(tmp_path, "kept")
    link = tmp_path / "in" / ".tfperf-tmp-0123abcd"
    link.symlink_to(folder)
    os.utime(link, (0, 0), follow_symlinks=False)
    TemporaryFolder(tmp_path / "in").close()
    assert (folder / "run" / "trace").exists()


@pytest.mark.skipif(
    getattr(os, "getuid", int)() != 0, reason="only root can make a folder of another user"
)
def test_what_is_another_users_stays(tmp_path):
    folder = left(tmp_path)
    os.chown(folder, 65534, 65534)
    TemporaryFolder(tmp_path).close()
    assert (folder / "run" / "trace").exists()


def test_links_within_a_folder_are_removed_and_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("here")
    with TemporaryFolder(tmp_path) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "link").symlink_to(kept)
        (folder / "link").symlink_to(kept / "file")
    assert not folder.exists()
    assert (kept / "file").read_text() == "here"
