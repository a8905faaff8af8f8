"""Files written as a whole."""

import os
import stat

import pytest

from pytest_tfperf.files import is_installed, replace_file, replacing


def test_a_file_is_written_and_its_folders_made(tmp_path):
    path = tmp_path / "a" / "b" / "file.json"
    replace_file(path, "größe ✓\n")
    assert path.read_bytes() == "größe ✓\n".encode()


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("old" * 1000)
    replace_file(path, "new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new", [path])


def test_a_reader_of_the_old_file_keeps_the_old_content(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("old")
    with path.open() as reader:
        replace_file(path, "new")
        assert reader.read() == "old"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_can_be_read_by_those_whom_the_umask_lets(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        replace_file(tmp_path / "file.json", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file.json").stat().st_mode) == mode


def test_a_failed_write_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "new \ud800")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        replace_file(tmp_path / "file" / "below" / "file.json", "")


def test_a_file_written_in_parts_replaces_the_old_one_at_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"ne")
        assert path.read_text() == "old"
        file.write(b"w")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new", [path])


def test_an_error_between_parts_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_files_of_installed_packages_are_recognised():
    for path, installed in [
        ("/venv/lib/python3.11/site-packages/keras/src/models/model.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", True),
        ("C:\\env\\Lib\\site-packages\\keras\\model.py", True),
        ("/home/user/model.py", False),
        ("/home/user/my-site-packages/model.py", False),
    ]:
        assert is_installed(path) is installed, path
