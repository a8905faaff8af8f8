"""`--tfperf-baseline` with the baselines of the version before, on real TensorFlow."""

import json
import shutil

import keras  # before any test, since pytester forgets what a test imports
import pytest
from helpers.paths import DATA

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

ABOUT_TPUS = ("op_guide_findings", "padding_overhead", "mxu_padding_overhead")
OLD = DATA / "previous_version"
RECORDED_WITH = "3.15.1"


@pytest.fixture
def old_suite(suite):
    """Run the old test file beside a copy of its baselines."""
    shutil.copytree(OLD, suite.path, dirs_exist_ok=True)
    return lambda *arguments: suite("suite.py", "-p", "no:randomly", *arguments)


def stored(path):
    return {file: file.read_bytes() for file in (path / "__tfperf__").rglob("*.json")}


def test_a_suite_keeps_to_its_old_baseline_and_leaves_it_as_it_is(suite, old_suite):
    before = stored(suite.path)
    result = old_suite("--tfperf-baseline", "--tfperf-report", "new.json")
    shown = result.stdout.str()
    tests = json.loads((suite.path / "new.json").read_text())["tests"]
    worse = {
        (test["key"], check["metric"])
        for test in tests
        for check in test["checks"]
        if check["verdict"] == "REGRESSION"
    }
    if keras.__version__ == RECORDED_WITH:  # the FLOPs of a fit depend on Keras
        result.assert_outcomes(passed=3, failed=1)
        assert not worse
    else:
        assert worse <= {("test_fit", "flops")}
    result.stdout.fnmatch_lines(["*no baseline in *"])
    assert stored(suite.path) == before
    assert "padding_overhead" in str(before)
    assert not [name for name in ABOUT_TPUS if name in shown]
    metrics = [check["metric"] for test in tests for check in test["checks"]]
    assert "retraces" in metrics
    assert not set(ABOUT_TPUS) & set(metrics)
