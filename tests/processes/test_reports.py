"""A whole run, without TensorFlow, and what it writes for others to read."""

import json
import os
from xml.etree import ElementTree

import jsonschema
import pytest
from helpers.paths import ROOT, TESTS

SCHEMA = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
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
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary"))
    pytester.makepyfile(test_suite=SUITE)
    return lambda *arguments: pytester.runpytest_subprocess(
        "-p", "helpers.fake_profiler", "-p", "no:cacheprovider", *arguments
    )


def test_one_run_writes_every_kind_of_report(run, pytester):
    result = run(
        "--junitxml=junit.xml",
        *(f"--tfperf-report=run{ending}" for ending in (".json", ".md", ".csv", ".html")),
    )
    result.assert_outcomes(passed=1, failed=1)
    written = {
        name: (pytester.path / name).read_text(encoding="utf-8")
        for name in ("run.json", "run.md", "run.csv", "run.html", "summary")
    }
    assert written["summary"] == f"{written['run.md']}\n"
    assert written["run.md"].startswith("# ❌ tfperf: 3 checks passed, 1 failed\n")
    assert "test_suite.py,test_step[2],eval,failed,step_time,0.25,s" in written["run.csv"]
    assert "test_step[2]" in written["run.html"]
    VALIDATOR.validate(json.loads(written["run.json"]))
    result.stdout.fnmatch_lines(
        [
            f"::error file={pytester.path.name}/test_suite.py,line=3,title=test_step?2?%3A retraces FAIL::test_step?2?: retraces is 2*"
        ]
    )


def test_properties_of_junit_are_the_metrics_of_each_test(run, pytester):
    run("--junitxml=junit.xml")
    cases = ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
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
