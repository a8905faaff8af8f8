"""Commands refuse what is no regular file, and wait for nobody."""

import os
from pathlib import Path

from pytest_tfperf.cli.main import main


def test_what_is_no_regular_file_is_refused(tmp_path, capsys):
    fifo, device = tmp_path / "fifo.xplane.pb", tmp_path / "device.xplane.pb"
    os.mkfifo(fifo)
    device.symlink_to("/dev/zero")
    for path in (fifo, device):
        for command, *options in (
            ["analyze"],
            ["check", "--max-retraces", "0"],
            ["show"],
            ["padding"],
        ):
            assert main([command, str(path), *options]) == 2, (path, command)
            said = capsys.readouterr().err
            assert said.startswith("tfperf: "), (path, command)
            assert len(said.splitlines()) == 1, (path, command)


def test_a_trace_that_is_a_device_in_a_logdir_is_refused(tmp_path, capsys):
    run = tmp_path / "plugins/profile/run"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").symlink_to(Path("/dev/zero"))
    assert main(["analyze", str(tmp_path)]) == 2
    assert "not a regular file" in capsys.readouterr().err
