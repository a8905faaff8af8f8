"""Commands refuse what is no regular file, and wait for nobody."""

import os
from pathlib import Path

import pytest

from pytest_tfperf.cli.main import main


@pytest.fixture(params=["FIFO", "device"])
def special(request, tmp_path):
    path = tmp_path / "special.xplane.pb"
    if request.param == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(
    "words",
    [["analyze"], ["check", "--max-retraces", "0"], ["show"], ["padding"]],
    ids=lambda words: words[0],
)
def test_what_is_no_regular_file_is_refused(special, words, capsys):
    assert main([words[0], str(special), *words[1:]]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tfperf: ")
    assert len(said.splitlines()) == 1


def test_a_trace_that_is_a_device_in_a_logdir_is_refused(tmp_path, capsys):
    run = tmp_path / "plugins/profile/run"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").symlink_to(Path("/dev/zero"))
    assert main(["analyze", str(tmp_path)]) == 2
    assert "not a regular file" in capsys.readouterr().err
