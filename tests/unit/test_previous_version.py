"""Baselines written by the version before: compared and accepted as before."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.paths import DATA

from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline
from pytest_tfperf.baseline.store import Place, read_structure
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import read_run
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


@pytest.mark.parametrize("key", PASSED)
def test_a_profile_equals_its_old_baseline(old_run, key):
    (test,) = [test for test in old_run.tests if test.key == key]
    (measured,) = test.profiles
    place = Place.of("suite.py", OLD, None)
    checks = compare_with_baseline(measured, key, Baseline(place), test.environment, None, 0.6)
    structure = [check for check in checks if check.metric != "step_time"]
    assert len(structure) > 10
    assert {check.verdict for check in structure} == {Verdict.PASS}
    (timed,) = [check for check in checks if check.metric == "step_time"]
    assert timed.verdict in (Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE)


def test_a_change_is_a_regression_over_the_old_baseline(old_run):
    test = old_run.tests[0]
    (measured,) = test.profiles
    retraces = measured.metrics["retraces"].changed(number=3.0)
    worse = replace(measured, metrics={**measured.metrics, "retraces": retraces})
    place = Place.of("suite.py", OLD, None)
    checks = compare_with_baseline(
        worse, test.key, Baseline(place), test.environment, "structural", None
    )
    assert [check.metric for check in checks if check.verdict is not Verdict.PASS] == ["retraces"]


def test_accepting_an_old_run_writes_the_old_baseline(project, capsys):
    stored = baselines(project)
    shutil.rmtree(project / "__tfperf__")
    assert main(["accept", "run.json"]) == 0
    written = baselines(project)
    entries = {
        key: entry
        for content in written.values()
        for key, entry in content.get("tests", {}).items()
        if "program" in entry
    }
    # the version before did not store these
    [detail] = [path for path, content in written.items() if "lists" in content]
    op_types = {key: one["op_types"] for key, one in written.pop(detail)["lists"].items()}
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


@pytest.mark.parametrize("version", [3, 1, "2"])
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
