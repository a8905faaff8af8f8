"""Run files and baselines written by the version before: shown, compared and accepted as before."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.paths import DATA

from pytest_tfperf.baseline.compare import compare_with_baseline
from pytest_tfperf.baseline.store import Place, read_structure
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import read_run, write_run
from pytest_tfperf.results import Verdict

OLD = DATA / "previous_version"
RUN = OLD / "run.json"
PASSED = ("test_compiled", "test_fit", "test_loop")


@pytest.fixture
def old_run():
    return read_run(RUN)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the old test file and its baselines, as the current folder."""
    shutil.copytree(OLD, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "project"


def baselines(project):
    return {path: json.loads(path.read_text()) for path in (project / "__tfperf__").rglob("*.json")}


def slower(run):
    """The run with one new op, one slower input stage and one more fusion in its first test."""
    test, *others = run.tests
    (measured,) = test.profiles
    tables = dict(measured.tables)
    new_op = ("host", "t", "Transpose", 1.0, 0.3, 0.3, 0.1, 0.0)
    tables["host_ops"] = replace(tables["host_ops"], rows=(*tables["host_ops"].rows, new_op))
    tables["stages"] = with_cell(tables["stages"], "self_s", 0.4)
    tables["executables"] = with_cell(tables["executables"], "fusions", 4)
    tables["graph"] = with_cell(tables["graph"], "after", 5)
    changed = replace(measured, tables=tables)
    return replace(run, tests=(replace(test, profiles=(changed,)), *others))


def with_cell(table, key, value):
    """The table with another cell in its first row."""
    first, *others = table.records()
    rows = tuple(tuple(row.values()) for row in ({**first, key: value}, *others))
    return replace(table, rows=rows)


def test_columns_of_every_table_have_the_keys_of_this_version(old_run):
    tables = [
        (key, table)
        for test in old_run.tests
        for profile in test.profiles
        for key, table in profile.tables.items()
    ]
    columns = {key: [column.key for column in table.columns] for key, table in tables}
    assert columns["host_ops"] == [
        "where",
        "op",
        "type",
        "occurrences",
        "total_s",
        "self_s",
        "share",
        "eager",
    ]
    assert columns["stages"][2:9] == [
        "calls",
        "self_s",
        "blocking_s",
        "element_s",
        "parallelism",
        "buffered",
        "buffer_limit",
    ]
    assert columns["executables"] == [
        "executable",
        "runs",
        "ops",
        "fusions",
        "flops",
        "accessed",
        "arguments",
        "outputs",
        "temporaries",
        "compile_s",
        "hlo",
    ]
    assert columns["graph"] == ["type", "before", "after"]
    assert columns["outside_xla"] == ["op", "type", "line", "why", "ops"]


def test_an_old_run_is_shown(project, capsys):
    assert main(["show", "run.json"]) == 1
    shown = capsys.readouterr().out
    titles = [line.split()[0] for line in shown.splitlines() if line.startswith("test_")]
    assert titles == ["test_compiles", *PASSED[1:], "test_eager"] or titles == [
        *PASSED,
        "test_eager",
    ]
    assert "eager_ops was 2, wanted at most 0 (max_eager_ops=0)" in shown
    assert main(["show", "-v", "run.json"]) == 1
    assert "where: eager: MatMul at suite.py:45 ×20" in capsys.readouterr().out


def test_an_old_run_becomes_a_page_and_a_run_file_of_this_version(project, old_run):
    assert main(["report", "run.json", "-o", "new.json"]) == 0
    assert json.loads((project / "new.json").read_text())["format"] == 2
    assert read_run(project / "new.json") == old_run
    assert main(["report", "run.json", "-o", "page.html"]) == 0
    assert "MapAndBatch" in (project / "page.html").read_text()


def test_an_old_run_differs_in_nothing_from_itself_in_the_new_format(project, old_run, capsys):
    write_run(old_run, project / "new.json")
    assert main(["compare", "run.json", "new.json"]) == 0
    assert "differs" not in capsys.readouterr().out


def test_the_comparison_with_an_old_run_names_what_differs(project, old_run, capsys):
    write_run(slower(old_run), project / "new.json")
    main(["compare", "run.json", "new.json"])
    shown = capsys.readouterr().out
    assert "+300 ms: 1 new Transpose on the host (t)" in shown
    assert "ms: input stage MapAndBatch: self time 256 µs → 400 ms" in shown
    assert "XLA executable train: 3 → 4 fusions" in shown
    assert "graph: Identity 1 → 5" in shown


@pytest.mark.parametrize("key", PASSED)
def test_a_profile_equals_its_old_baseline(old_run, key):
    (test,) = [test for test in old_run.tests if test.key == key]
    (measured,) = test.profiles
    place = Place.of("suite.py", OLD, None)
    checks = compare_with_baseline(measured, key, place, test.environment, None, 0.6)
    structure = [check for check in checks if check.metric != "step_time"]
    assert len(structure) > 10
    assert {check.verdict for check in structure} == {Verdict.PASS}
    (timed,) = [check for check in checks if check.metric == "step_time"]
    assert timed.verdict in (Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE)


def test_a_change_is_a_regression_over_the_old_baseline(old_run):
    test = old_run.tests[0]
    (measured,) = test.profiles
    retraces = replace(measured.metrics["retraces"], number=3.0)
    worse = replace(measured, metrics={**measured.metrics, "retraces": retraces})
    place = Place.of("suite.py", OLD, None)
    checks = compare_with_baseline(worse, test.key, place, test.environment, "structural", None)
    assert [check.metric for check in checks if check.verdict is not Verdict.PASS] == ["retraces"]


def test_accepting_an_old_run_writes_the_old_baseline(project, capsys):
    stored = baselines(project)
    shutil.rmtree(project / "__tfperf__")
    assert main(["accept", "run.json"]) == 0
    written = baselines(project)
    entries = {
        key: entry
        for content in written.values()
        for key, entry in content["tests"].items()
        if "program" in entry
    }
    # the version before did not store these
    op_types = {key: entry.pop("op_types") for key, entry in entries.items()}
    n_steps = {key: entry.pop("counted_steps") for key, entry in entries.items()}
    assert all(n > 50 for n in n_steps.values())
    assert written == stored
    assert {
        key: sum(sum(types.values()) for types in one.values()) for key, one in op_types.items()
    } == {
        "test_compiled": 15,
        "test_fit": 83,
        "test_loop": 9,
    }
    assert sorted(read_structure(project / "__tfperf__" / "suite.json")) == sorted(PASSED)


@pytest.mark.parametrize("version", [3, 0, -1, "2", None, 2.5])
def test_a_run_of_an_unknown_format_is_refused_by_name(project, capsys, version):
    data = json.loads(RUN.read_text())
    (project / "run.json").write_text(json.dumps({**data, "format": version}))
    before = files_of(project)
    for arguments in (
        ["show", "run.json"],
        ["compare", "run.json", "run.json", "-o", "changes.html"],
        ["report", "run.json", "-o", "page.html"],
        ["accept", "run.json"],
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("tfperf: run.json: ")
    assert files_of(project) == before


@pytest.mark.parametrize("name", ["suite.json", "timing"])
@pytest.mark.parametrize("version", [2, 0, "1"])
def test_a_baseline_of_an_unknown_format_is_refused_by_name(project, capsys, name, version):
    path = project / "__tfperf__" / name
    (path,) = path.glob("*.json") if path.is_dir() else (path,)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": version}))
    before = files_of(project)
    assert main(["accept", "run.json"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfperf: baseline ")
    assert path.name in error
    assert files_of(project) == before


def files_of(project):
    return {
        path: path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }
