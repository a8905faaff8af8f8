"""`tfperf accept`, and `tfperf compare` of run files: whole outputs, exit statuses, and what bad input leaves untouched."""

import errno
import json

import pytest
from helpers.builders import LAPTOP, created, profile, record_of, run_of, value
from helpers.faults import failing

from pytest_tfperf.baseline.store import Place
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "test_model.py").write_text("")
    return tmp_path


@pytest.fixture
def write(project):
    """Write a run of one test, made at a second of its own, and give its file's name."""

    def write_one(name, second, step_time=0.1, retraces=0, **fields):
        test = record_of(profile(step_time=step_time, retraces=retraces), **fields)
        write_run(run_of(test, second=second), project / name)
        return name

    return write_one


def structure(project):
    return Place.of("test_model.py", project, None).structure


def timing(project):
    return Place.of("test_model.py", project, None).timing_file(LAPTOP["machine"])


def printed(capsys):
    return capsys.readouterr().out.splitlines()


NOISY = value("step_time", 0.1, settled=True, interference=["other processes used 83%: wait"])


def test_accept_records_no_disturbed_time_of_unknown_load(project, write, capsys):
    run = write("noisy.json", 1, NOISY)
    assert main(["accept", run, "--tfperf-record-noisy"]) == 0
    said = "times: other processes used 83%; run on a quiet machine"
    assert any(f"left out: test_step: {said}" in line for line in printed(capsys))
    assert structure(project).exists()
    assert not timing(project).exists()


def test_accept_says_what_it_changed_and_what_it_left_out(project, write, capsys):
    runs = [
        write(f"{n}.json", n, 0.1 + n / 1000, key=key, outcome=outcome)
        for n, key, outcome in (
            (1, "test_a", "passed"),
            (2, "test_a", "passed"),
            (3, "test_b", "failed"),
            (4, "test_b", "failed"),
        )
    ]
    assert main(["accept", *runs]) == 0
    assert printed(capsys) == [
        "4 runs: 1 entry and 1 history changed",
        f"  recorded: test_a in {structure(project).relative_to(project)}",
        f"  times: 2 runs added, 2 kept: test_a in {timing(project).relative_to(project)}",
        f"  left out: test_b: the test failed (run of {created(3)}, {created(4)})",
    ]
    assert set(json.loads(structure(project).read_text())["tests"]) == {"test_a"}


def test_what_is_left_out_of_many_runs_is_one_line(project, write, capsys):
    assert main(["accept", *(write(f"{n}.json", n, outcome="failed") for n in range(5))]) == 1
    assert printed(capsys)[1:] == [
        f"  left out: test_step: the test failed (run of {created(0)}, {created(1)}, {created(2)}, and 2 more)"
    ]
    assert not structure(project).exists()


def test_what_is_recorded_already_is_fine(project, write, capsys):
    run = write("run.json", 1)
    assert main(["accept", run]) == 0
    printed(capsys)
    assert main(["accept", run]) == 0
    assert printed(capsys) == [
        "1 run: 0 entries and 0 histories changed",
        f"  left out: test_step: times: it is recorded already (run of {created(1)})",
    ]


def test_a_new_level_is_said_with_the_one_before(project, write, capsys):
    main(["accept", *(write(f"{n}.json", n) for n in range(5))])
    printed(capsys)
    assert main(["accept", write("new.json", 9, 0.05)]) == 0
    [line] = [line for line in printed(capsys) if "anew" in line]
    assert (
        "the history starts anew with 1 run: step_time was 100 ms, and is 50 ms now: test_step in"
        in line
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_tests_are_named_anywhere_on_the_line(project, write, place):
    run = write("run.json", 1)
    words = [run, "--rootdir", "."]
    words.insert(place if place < 2 else 3, "test_step")
    assert main(["accept", *words]) == 0
    assert structure(project).is_file()


def test_rootdir_and_baseline_dir_say_where_files_go(project, write, monkeypatch):
    run = project / write("run.json", 1)
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    assert main(["accept", str(run), "--rootdir", "..", "--baseline-dir", "kept"]) == 0
    assert (project / "elsewhere" / "kept" / "test_model.json").is_file()


def test_what_cannot_be_accepted_is_said_and_nothing_written(project, write, capsys):
    write("run.json", 1)
    (project / "damaged.json").write_text("{")
    for words, said in [
        (
            ["run.json", "test_stpe"],
            "no profiled test 'test_stpe' in these runs; did you mean 'test_step'?",
        ),
        (["run.json", "--rootdir", "elsewhere"], "no test file test_model.py in "),
        (["absent.json"], "absent.json: cannot be read: No such file or directory"),
        (["damaged.json"], "damaged.json: not a run file"),
    ]:
        assert main(["accept", *words]) == 2, words
        assert said in capsys.readouterr().err, words
        assert not structure(project).parent.exists(), words


def test_what_is_no_use_of_accept_is_refused(project, write, capsys):
    write("run.json", 1)
    for words in [["test_step"], [], ["run.json", "--unknown"]]:
        with pytest.raises(SystemExit) as ended:
            main(["accept", *words])
        assert ended.value.code == 2, words
        assert "usage: tfperf accept" in capsys.readouterr().err, words


def files_of(project):
    return {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


@pytest.mark.parametrize("which", [structure, timing])
def test_a_read_only_disk_is_said(project, write, capsys, which):
    main(["accept", write("1.json", 1)])
    write("2.json", 2, 0.102, retraces=5)
    before = files_of(project)
    with failing(which(project).parent, 1, errno.EROFS, lasting=True, kinds=("mkdir",)):
        assert main(["accept", "2.json"]) == 2
    assert "cannot be written: Read-only file system; mend that" in capsys.readouterr().err
    after = files_of(project)
    assert after.keys() == before.keys()
    assert after[which(project)] == before[which(project)]


def test_compare_shows_two_runs_with_the_verdicts_of_a_baseline(write, capsys):
    files = write("a.json", 1, 0.1, 0), write("b.json", 2, 0.11, 3)
    assert main(["compare", *files]) == 1
    assert printed(capsys) == [
        f"before: 1 test, {created(1)}, abc123",
        f"after: 1 test, {created(2)}, abc123",
        "",
        "test       metric     before   after  change        result",
        "---------  ---------  ------  ------  ------  ------------",
        "test_step  step_time  100 ms  110 ms   +10 %  INCONCLUSIVE",
        "           retraces        0       3            REGRESSION",
        "REGRESSION   test_step: retraces rose from 0 to 3",
        "INCONCLUSIVE test_step: step_time is 10 % slower than the first file: 100 ms to 110 ms; one run against one decides nothing but a doubled time",
        "tfperf: 0 checks passed, 1 failed, 1 not decided",
    ]


def test_compare_says_of_runs_which_tests_did_not_pass(write, capsys):
    main(["compare", write("a.json", 1, outcome="failed"), write("b.json", 2)])
    assert printed(capsys)[0] == f"before: 1 test, 1 of which did not pass, {created(1)}, abc123"


def test_compare_verbose_says_what_to_do_next(write, capsys):
    assert main(["compare", "-v", write("a.json", 1), write("b.json", 2)]) == 0
    assert (
        "  try: five runs or more in a baseline (tfperf accept), or pytest --tfperf-against REF, which compares in turns"
        in "\n".join(printed(capsys))
    )


def test_the_exit_status_of_compare_is_that_of_its_checks(write):
    for now, status in [
        ({"retraces": 0}, 0),
        ({"retraces": 1}, 1),
        ({"step_time": 0.21}, 1),
        ({"key": "test_other"}, 1),
        ({"environment": {**LAPTOP, "machine": {}}}, 0),
    ]:
        assert main(["compare", write("a.json", 1), write("b.json", 2, **now)]) == status, now


def test_what_is_unknown_now_has_a_status_of_its_own(project, write):
    write("a.json", 1)
    write_run(run_of(record_of(profile(step_time=0.1)), second=2), project / "b.json")
    assert main(["compare", "a.json", "b.json"]) == 3


def test_compare_json_is_one_object(write, capsys):
    assert main(["compare", "--json", write("a.json", 1, 0.1), write("b.json", 2, 0.12)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["format", "before", "after", "tests"]
    assert found["before"] == {"created": created(1), "commit": "abc123"}
    [test] = found["tests"]
    assert [(check["metric"], check["verdict"], check["kind"]) for check in test["checks"]] == [
        ("retraces", "PASS", "compare"),
        ("step_time", "INCONCLUSIVE", "compare"),
    ]
    assert test["profiles"][""]["step_time"] == {
        "unit": "s",
        "before": 0.1,
        "after": 0.12,
        "ratio": pytest.approx(1.2),
    }


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("changes.md", "| ❌ REGRESSION | `test_model.py::test_step` | `retraces` | 0 | 3 |  |"),
        ("changes.html", "retraces rose from 0 to 3"),
        ("changes.csv", ",retraces,3.0,count,program,lower,trace,3.0,3.0,,,,0.0,,,,REGRESSION"),
        ("changes.json", "retraces rose from 0 to 3"),
    ],
)
def test_compare_writes_a_report_too(project, write, capsys, file, told):
    assert main(["compare", write("a.json", 1), write("b.json", 2, retraces=3), "-o", file]) == 1
    assert told in (project / file).read_text()
    assert "REGRESSION   test_step: retraces rose from 0 to 3" in printed(capsys)


def test_a_report_that_cannot_be_written_is_said_before_anything_is_shown(write, capsys):
    assert main(["compare", write("a.json", 1), write("b.json", 2), "-o", "changes.pdf"]) == 2
    assert capsys.readouterr() == (
        "",
        "tfperf: report changes.pdf: the file ending must be one of .json, .html, .md, .csv\n",
    )


def test_traces_become_a_page_only(capsys):
    assert main(["compare", "before/", "after/", "-o", "changes.md"]) == 2
    assert capsys.readouterr().err == "tfperf: changes.md: a page of traces ends in .html\n"


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_file_and_a_trace_are_not_compared(write, capsys, order):
    files = [write("a.json", 1), "logdir"][::order]
    assert main(["compare", *files]) == 2
    assert (
        capsys.readouterr().err
        == "tfperf: a.json is a run file and logdir a trace: give two of one kind\n"
    )


@pytest.mark.parametrize("name", ["absent.json", "damaged.json"])
def test_a_run_file_that_cannot_be_read_is_named(project, write, capsys, name):
    (project / "damaged.json").write_text("[]")
    assert main(["compare", write("a.json", 1), name]) == 2
    assert name in capsys.readouterr().err
