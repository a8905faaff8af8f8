"""A whole run, without TensorFlow, and what it writes for others to read."""

from xml.etree import ElementTree

import pytest
from helpers.runs_within import measure_with_stand_in

from pytest_tfperf.report.run_file import read_run

SUITE = """
import pytest

@pytest.mark.tfperf(max_retraces=0)
@pytest.mark.parametrize("retraces", [0, 2])
def test_step(tf_profile, retraces, record_property):
    record_property("mine", 1)
    tf_profile(0.5, retraces=retraces)
    tf_profile(0.25, name="eval", retraces=0)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    measure_with_stand_in(monkeypatch)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary"))
    pytester.makepyfile(test_suite=SUITE)
    options = "-p", "no:cacheprovider", "-W", "ignore"
    return lambda *arguments: pytester.runpytest_inprocess(*options, *arguments)


def test_one_run_writes_every_kind_of_report(run, pytester):
    endings = (".json", ".md", ".csv", ".html")
    result = run("--junitxml=junit.xml", *(f"--tfperf-report=run{one}" for one in endings))
    result.assert_outcomes(passed=1, failed=1)
    written = {
        name: (pytester.path / name).read_text(encoding="utf-8")
        for name in ("run.md", "run.csv", "run.html", "summary")
    }
    assert written["summary"] == f"{written['run.md']}\n"
    assert written["run.md"].startswith("# ❌ tfperf: 3 checks passed, 1 failed\n")
    assert "test_suite.py,test_step[2],eval,failed,step_time,0.25,s" in written["run.csv"]
    assert "test_step[2]" in written["run.html"]
    kept = read_run(pytester.path / "run.json")  # which keeps to its schema
    assert [test.outcome for test in kept.tests] == ["passed", "failed"]
    result.stdout.fnmatch_lines(
        [
            f"::error file={pytester.path.name}/test_suite.py,line=3,title=test_step?2?%3A retraces FAIL::test_step?2?: retraces is 2*"
        ]
    )

    check_junit(pytester.path / "junit.xml")


def check_junit(path):
    """Its properties are the metrics of each test."""
    cases = ElementTree.parse(path).iter("testcase")
    found = [
        [(one.get("name"), one.get("value")) for one in case.iter("property")] for case in cases
    ]
    assert found == [
        [
            ("mine", "1"),
            ("tfperf.step_time", "0.5"),
            ("tfperf.retraces", retraces),
            ("tfperf.eval.step_time", "0.25"),
            ("tfperf.eval.retraces", "0.0"),
        ]
        for retraces in ("0.0", "2.0")
    ]
