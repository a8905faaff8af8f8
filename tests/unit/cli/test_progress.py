"""Progress of commands: on a terminal one line that goes away, elsewhere a line now and then."""

import io
import sys
from contextlib import closing

import pytest
from helpers.screen import Terminal

from pytest_tfperf.cli.progress import Progress


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_terminal_shows_the_phase_and_its_seconds(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with closing(Progress()) as progress:
        progress.phase("checking")
        assert terminal.getvalue().endswith("tfperf: checking")
        progress.close()
        progress.phase("comparing", 1000.0)
        assert terminal.getvalue().endswith("tfperf: comparing, about 1000 s")
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


def test_short_work_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with closing(Progress(on_terminal=False)) as progress:
        progress.phase("analysing")
    assert terminal.getvalue() == ""


def test_a_file_gets_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with closing(Progress(every_s=0.0)) as progress:
        progress.phase("checking")
    with closing(Progress()) as progress:
        progress.phase("comparing")
    assert stream.getvalue() == "tfperf: checking\n"
