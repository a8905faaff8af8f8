"""The terminal of the commands: colours, width, and lines without trailing spaces."""

import io

import pytest
from helpers.screen import Terminal

from pytest_tfperf.cli.terminal import (
    Screen,
    has_colours,
    labelled,
    line,
    shown,
    write_out,
)
from pytest_tfperf.report.run_text import TextLine


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


def test_colours_are_those_that_the_environment_asks_for(monkeypatch):
    for stream, settings, coloured in [
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": ""}, False),
        (io.StringIO, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (io.StringIO, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
    ]:
        written = stream()
        with monkeypatch.context() as patch:
            for name, text in settings.items():
                patch.setenv(name, text)
            assert has_colours(written) is coloured, (stream, settings)


def test_a_line_has_its_styles_wherever_it_wraps():
    styled = line(("trace name", "bold"), ": a ", ("long b", "bold yellow"), deeper=2)
    assert shown([styled], Screen(9, has_colours=True)) == (
        "\x1b[1mtrace\x1b[0m\n  \x1b[1mname\x1b[0m: a\n  \x1b[1;33mlong b\x1b[0m\n"
    )
    assert shown([styled], Screen(9)) == "trace\n  name: a\n  long b\n"


def test_texts_of_others_control_no_terminal_and_no_job():
    hostile = "a\x1b[31m\u202e\n::error::b"
    for one in (hostile, line((hostile, "red"), hostile)):
        text = shown([one], Screen())
        assert not set(text) & set("\x1b\u202e")
        assert not any(part.startswith("::") for part in text.splitlines())


def test_lines_of_a_run_have_their_colours(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    write_out(TextLine("good", "green"), TextLine("plain"))
    assert capsys.readouterr().out == "\x1b[32mgood\x1b[0m\nplain\n"


def test_lines_wrap_at_the_width_of_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    write_out(TextLine("FAIL  test: as long as it is", "red", 6))
    assert capsys.readouterr().out == "FAIL  test: as long\n      as it is\n"


def test_a_name_that_is_longer_than_the_terminal_is_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    name = "test_model.py::test_step[a-long-parameter]"
    write_out(TextLine(f"FAIL  {name}: slow", "red", 6))
    assert capsys.readouterr().out == f"FAIL  {name}:\n      slow\n"


def test_a_file_has_whole_lines(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS")
    write_out("word " * 500, *labelled([("note:", "word " * 500), ("n", "")]))
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == (("word " * 500).rstrip(), ("note: " + "word " * 500).rstrip())
    assert third == "n"


def test_wide_characters_are_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    write_out(*labelled([("注:", "畳み込み" * 6)]), TextLine("畳み込み" * 6))
    assert "".join(capsys.readouterr().out.split()) == "注:" + "畳み込み" * 12
