"""The command `tfperf`: whole outputs and exit statuses."""

import io
import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from helpers.builders import check, profile, record_of
from helpers.sample_run import FAILED, PASSED
from helpers.sample_trace import sample_trace

from pytest_tfperf import __version__
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run
from pytest_tfperf.runs import Run


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def run_file(tmp_path):
    """Write a run file of tests with these checks."""

    def write(*checks):
        measured = profile(
            step_time=0.0125, input_bound=0.19, retraces=0, notes=("12 of 50 steps",)
        )
        path = tmp_path / "run.json"
        write_run(
            Run(created="2026-01-31T12:00:00+00:00", tests=(record_of(measured, checks=checks),)),
            path,
        )
        return str(path)

    return write


def test_an_encoding_without_arrows_shows_question_marks(run_file, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    arrow = check("FAIL", sentence="a retrace: x float32[8,3] → float32[5,3], 20 µs")
    assert main(["show", run_file(arrow)]) == 1
    sys.stdout.flush()
    text = " ".join(written.getvalue().decode("cp1252").split())
    assert "x float32[8,3] ? float32[5,3], 20 µs" in text


def test_report_writes_what_the_ending_says(run_file, tmp_path, capsys):
    for name, begins, holds in (
        ("perf.html", "<!doctype html>", "above the limit of 5 %"),
        ("perf.md", "", "above the limit of 5 %"),
        ("perf.csv", "", "input_bound"),
        ("perf.json", "{", "above the limit of 5 %"),
    ):
        out = tmp_path / name
        assert main(["report", run_file(FAILED, PASSED), "-o", str(out)]) == 0
        text = out.read_text(encoding="utf-8")
        assert text.lower().startswith(begins), name
        assert holds in text, name
        assert capsys.readouterr() == ("", "")


def test_a_report_that_cannot_be_written_is_said(run_file, tmp_path, capsys):
    (tmp_path / "gone").write_text("a file where a folder is wanted")
    for name, why in (
        ("perf.txt", "must be one of .json, .html, .md, .csv"),
        ("gone/perf.md", "cannot be written: "),
    ):
        assert main(["report", run_file(FAILED), "-o", str(tmp_path / name)]) == 2
        assert f"report {tmp_path / name}: " in (said := capsys.readouterr().err)
        assert why in said


def test_show_verbose_adds_causes_notes_and_what_passed(run_file, capsys):
    for flag in ("-v", "--verbose"):
        assert main(["show", flag, run_file(FAILED, PASSED)]) == 1
        assert capsys.readouterr().out == dedent("""\
            test       metric         value  limit  result
            ---------  -----------  -------  -----  ------
            test_step  step_time    12.5 ms
                       input_bound     19 %  ≤ 5 %    FAIL
                       retraces           0    ≤ 0      ok
            FAIL         test_step: input_bound is 19 %, above the limit of 5 %
                         (max_input_bound='5%')
                           where: 90 % in Map
                           try: prefetch
            PASS         test_step: retraces is 0, limit 0
            test_step: 12 of 50 steps
            tfperf: 1 check passed, 1 failed
            """)


def test_show_keeps_to_the_width_of_the_terminal(run_file, capsys, monkeypatch):
    for columns, head in (("80", "test metric value limit result"), ("35", "metric value result")):
        monkeypatch.setenv("COLUMNS", columns)
        main(["show", run_file(FAILED)])
        assert capsys.readouterr().out.splitlines()[0].split() == head.split()


def test_show_json_prints_the_profiles_as_one_object(run_file, capsys):
    path = run_file(PASSED)
    assert main(["show", "--json", path]) == 0
    printed, (test,) = (
        json.loads(capsys.readouterr().out),
        json.loads(Path(path).read_text("utf-8"))["tests"],
    )
    assert list(printed) == ["format", "profiles"]
    assert printed["profiles"] == [
        profile | {"name": test["nodeid"]} for profile in test["profiles"]
    ]


def test_the_exit_status_says_whether_a_check_failed_or_is_unknown(run_file, capsys):
    for verdicts, status in (
        ([], 0),
        (["PASS", "IMPROVED", "NEW", "INCONCLUSIVE", "INCOMPARABLE"], 0),
        (["PASS", "FAIL"], 1),
        (["REGRESSION"], 1),
        (["MISSING"], 1),
        (["UNKNOWN"], 3),
        (["UNKNOWN", "FAIL"], 1),
    ):
        path = run_file(*map(check, verdicts))
        assert (main(["show", path]), main(["show", "--json", path])) == (status, status), verdicts
        assert capsys.readouterr().err == ""


UNREADABLE = {
    None: "cannot be read: No such file or directory",
    "step_time: 5": (
        "not a run file of pytest --tfperf-report: not JSON: "
        "Expecting value: line 1 column 1 (char 0)"
    ),
    "[]": "not a run file of pytest --tfperf-report",
    '{"format": 3, "tests": []}': ("format 3, this version reads format 2; upgrade pytest-tfperf"),
    '{"format": 1, "tests": []}': "format 1, written by an older version; record it again",
    '{"format": 2, "tests": []}': (
        "damaged run file: Object missing required field `created`; "
        "write it again with pytest --tfperf-report"
    ),
}


def test_unreadable_input_is_status_2_and_one_line_on_stderr(tmp_path, capsys):
    path = tmp_path / "run.json"
    for content, said in UNREADABLE.items():
        if content is not None:
            path.write_text(content)
        for flags in ([], ["--json"]):
            assert main(["show", *flags, str(path)]) == 2, content
            assert capsys.readouterr() == ("", f"tfperf: {path}: {said}\n")


def test_usage_errors_are_status_2(capsys):
    for arguments in (
        ["show"],
        ["report", "-o", "a.html"],
        ["show", "run.json", "--last"],
        ["unheard-of"],
        ["-v"],
        ["show", "run.json", "--unheard-of"],
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2, arguments
        assert capsys.readouterr().err.startswith("usage: tfperf"), arguments


def test_without_arguments_it_prints_its_help(capsys):
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: tfperf [-h] [--version] COMMAND ...")
    assert err == ""
    status = "0 ok, 1 check failed, 2 usage or I/O error, 3 metric unavailable"
    assert status in " ".join(out.split())


def test_what_is_misspelt_has_a_suggestion(capsys):
    for arguments, said in (
        (["analyz", "x"], "no command 'analyz'; did you mean 'analyze'? valid: accept, analyze, "),
        (["xyz"], "no command 'xyz'; valid: accept, analyze, "),
        (["show", "run.json", "--jsn"], "no option '--jsn'; did you mean '--json'? valid: "),
        (["show", "run.json", "--zzz"], "no option '--zzz'; valid: --help, --json, "),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert said in capsys.readouterr().err


def test_the_last_run_is_shown_and_reported_from_any_folder_of_the_project(
    run_file, tmp_path, monkeypatch, capsys
):
    inner = tmp_path / "tests"
    inner.mkdir()
    monkeypatch.chdir(inner)
    for command in (["show", "--last"], ["report", "--last", "-o", "perf.md"]):
        assert main(command) == 2
        assert "no results of a pytest run" in capsys.readouterr().err
    kept = tmp_path / ".pytest_cache" / "d" / "tfperf"
    kept.mkdir(parents=True)
    Path(run_file(FAILED)).rename(kept / "last_run.json")
    assert main(["show", "--last"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "last run: 1 test, 2026-01-31T12:00:00+00:00"
    assert lines[-1] == "tfperf: 0 checks passed, 1 failed"
    assert main(["show", "--last", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["profiles"]) == 1
    assert main(["report", "--last", "-o", "perf.md"]) == 0
    assert "input_bound" in (inner / "perf.md").read_text("utf-8")


def test_a_trace_is_named_as_one(tmp_path, capsys):
    trace = tmp_path / "a.xplane.pb"
    trace.write_bytes(sample_trace())
    for path in (trace, tmp_path):
        for arguments in (["show", str(path)], ["report", str(path), "-o", "a.md"]):
            assert main(arguments) == 2
            assert capsys.readouterr() == (
                "",
                f"tfperf: {path} is a trace, not a run file: tfperf analyze {path} shows it\n",
            )
    named = tmp_path / "odd.json"
    named.write_bytes(sample_trace())
    assert main(["compare", str(named), str(named)]) == 2
    assert "odd.json: not a run file of pytest --tfperf-report" in capsys.readouterr().err


def test_a_pipe_has_every_column_and_whole_names(run_file, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS")
    path = Path(run_file())
    text = path.read_text("utf-8").replace("test_step", "test_" + "x" * 90)
    path.write_text(text, "utf-8")
    assert main(["show", str(path)]) == 0
    assert "test_" + "x" * 90 + "  step_time    12.5 ms" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"tfperf {__version__}\n")


def test_the_help_of_a_command_says_its_exit_status_and_has_an_example(capsys):
    for name in (
        *("analyze", "check", "padding", "export", "show", "report", "compare", "accept"),
        *("bisect", "metrics", "doctor", "completion"),
    ):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "Exit status" in text, name
        assert f"Example: tfperf {name} " in text
        assert "%%" not in text, name


def test_doctor_takes_seconds_above_zero(capsys):
    for seconds in ("0", "-1", "soon", "nan", "inf"):
        with pytest.raises(SystemExit, match="2"):
            main(["doctor", f"--seconds={seconds}"])
        assert "argument --seconds: " in capsys.readouterr().err


def test_ctrl_c_ends_a_command_without_a_traceback(monkeypatch):
    def stop(seconds, say):
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_tfperf.doctor.examine.examine", stop)
    assert main(["doctor"]) == 130


def test_without_shtab_completion_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err


def test_what_says_how_pytest_profiles_is_no_limit_of_a_trace(capsys):
    for name, value in (("warmup", "5"), ("max-regression", "5%"), ("tpu", "v5e")):
        with pytest.raises(SystemExit, match="2"):
            main(["check", "trace.xplane.pb", "--max-retraces", "0", f"--{name}", value])
        assert f"no option '--{name}'; " in capsys.readouterr().err
