"""A disk that is really full, at each free page from none to enough."""

import os
import subprocess

import pytest
from helpers.builders import profile, record_of, run_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
PAGE = 4096
MANY = 40  # tests, so that files have several pages


def runs(second, retraces):
    measured = profile(step_time=0.1, retraces=retraces)
    return run_of(*(record_of(measured, key=f"test_{n}") for n in range(MANY)), second=second)


@pytest.fixture
def disk(tmp_path):
    """A file system of 1 MB in memory, with a project on it; its runs are elsewhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("only root may mount a file system, and not in each container")
    try:
        (folder / "test_model.py").write_text("")
        for second in (1, 2):
            write_run(runs(second, second), tmp_path / f"{second}.json")
        assert main(["accept", str(tmp_path / "1.json"), "--rootdir", str(folder)]) == 0
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(folder, n_free):
    """Leave so many pages free."""
    free = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(b"." * (free.f_bavail * free.f_frsize - n_free * PAGE))
    return filler


@pytest.mark.parametrize("writes", ["accept", "report"])
def test_a_full_disk_is_said_and_no_file_is_broken(disk, tmp_path, capsys, writes):
    words = [str(tmp_path / "2.json"), "--rootdir", str(disk)]
    if writes == "report":
        (disk / "out.html").write_text("old")
        words = [words[0], "-o", str(disk / "out.html")]
    n_refused, n_old, status = 0, 0, None
    while status != 0:
        before = content(disk)
        filler = fill(disk, n_refused)
        capsys.readouterr()
        status = main([writes, *words])
        said = capsys.readouterr().err
        filler.unlink()
        if status != 0:
            n_refused += 1
            assert "cannot be written: No space left on device" in said
            assert said.count("\n") == 1
            assert content(disk).keys() == before.keys()
            n_old += content(disk) == before
    assert n_old > 3
    assert content(disk) != before
