"""Progress of commands: on a terminal one line that goes away, elsewhere a line now and then."""

import io
import sys
import threading

import pytest

from pytest_tfperf.cli.progress import shown_progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


class Awaited(io.StringIO):
    """A stream that tells when something was written."""

    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def write(self, text):
        found = super().write(text)
        self.written.set()
        return found


def test_a_terminal_shows_the_phase_and_the_seconds_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_progress() as progress:
        progress.phase("checking")
        assert "tfperf: checking, 0 s so far" in terminal.getvalue()
        progress.hide()
        progress.phase("comparing", 1000.0)
        assert "tfperf: comparing, 1000 s left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


def test_the_time_goes_on_where_a_phase_takes_longer_than_it_should(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_progress() as progress:
        progress.phase("comparing", 0.0)
    assert "comparing, 0 s so far" in terminal.getvalue()


def test_short_work_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_progress(on_terminal=False) as progress:
        progress.phase("analysing")
    assert terminal.getvalue() == ""


def test_a_file_gets_a_line_now_and_then(monkeypatch):
    stream = Awaited()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown_progress(heartbeat_s=0.001) as progress:
        progress.phase("checking")
        assert stream.written.wait(60)
    assert stream.getvalue().splitlines()[0] == "tfperf: checking, 0 s so far"


def test_nothing_is_written_after_the_end(monkeypatch):
    stream = Awaited()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown_progress() as progress:
        progress.phase("checking")
    assert stream.getvalue() == ""
    assert not [one for one in threading.enumerate() if one.name.endswith("(_beat)")]
