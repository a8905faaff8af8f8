"""Whole outputs of commands: read what changes. Other widths, more detail and colours have the same words."""

import re

import pytest
from helpers.golden import assert_golden
from helpers.sample_run import a_run
from helpers.sample_trace import sample_trace

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run

COMMANDS = {
    "analyze": (["analyze", "gpu.xplane.pb"], 0),
    "analyze_v": (["analyze", "-v", "gpu.xplane.pb"], 0),
    "check": (
        [
            *("check", "-v", "gpu.xplane.pb", "--max-input-bound", "5%", "--max-step-time", "20ms"),
            *("--max-input-wait", "1ms", "--max-epoch-gap", "1s", "--max-retraces", "0"),
        ],
        1,
    ),
    "compare": (["compare", "gpu.xplane.pb", "faster.xplane.pb"], 0),
    "show": (["show", "run.json"], 1),
    "show_v": (["show", "-v", "run.json"], 1),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with two traces and a run."""
    (tmp_path / "gpu.xplane.pb").write_bytes(sample_trace())
    (tmp_path / "faster.xplane.pb").write_bytes(sample_trace(wait_ms=2))
    write_run(a_run(), tmp_path / "run.json")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_as_a_whole(name, monkeypatch, capsys):
    arguments, status = COMMANDS[name]
    for columns in (80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(arguments) == status
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "\x1b" not in shown.out
        if not name.startswith("show"):  # names of tests are whole
            assert max(map(len, shown.out.splitlines())) <= columns, columns
        if columns == 80 and not name.endswith("_v"):
            assert_golden(f"cli_{name}_80.txt", shown.out)


def test_the_output_in_colours(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("analyze", "show"):
        main(COMMANDS[name][0])
        plain = capsys.readouterr().out.splitlines()
        with monkeypatch.context() as patch:
            patch.setenv("FORCE_COLOR", "1")
            main(COMMANDS[name][0])
        coloured = capsys.readouterr().out
        assert "\x1b[" in coloured, name
        lines = re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()
        assert [line.rstrip() for line in lines] == plain, name


def test_a_file_holds_the_same_words_uncut(monkeypatch, capsys):
    for name, (arguments, _) in COMMANDS.items():
        monkeypatch.setenv("COLUMNS", "80")
        main(arguments)
        narrow = capsys.readouterr().out
        monkeypatch.delenv("COLUMNS")
        main(arguments)
        whole = capsys.readouterr().out
        assert "…" not in whole.replace("2…3", ""), name  # a range of values
        joined = "".join(whole.split())
        words = {word for word in narrow.split() if "…" not in word and word[0].isalpha()}
        assert not {word for word in words if word not in joined}, name


def test_tables_of_a_file_have_a_row_a_line(capsys):
    main(["analyze", "-v", "gpu.xplane.pb"])
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if "ampere_sgemm_64x32" in line and "16,2,1" in line]
    assert "model/dense/MatMul" in row


def test_a_trace_of_an_error_says_0_of_nothing(tmp_path, capsys):
    (tmp_path / "bad.xplane.pb").write_bytes(sample_trace(errors=["no more space"]))
    assert main(["analyze", "bad.xplane.pb"]) == 0
    out = capsys.readouterr().out
    assert "note: the trace is not complete" in out or "the profiler reports an error" in out
    assert "Key figures" not in out
    assert main(["check", "bad.xplane.pb", "--max-step-time", "1 s"]) == 3
    assert "step_time is unknown" in capsys.readouterr().out
