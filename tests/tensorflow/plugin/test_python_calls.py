"""A planted wrapper that adds 40 calls a step is named by file and line, against a baseline."""

import json
import sys

import pytest

pytestmark = pytest.mark.usefixtures("processes")  # git, for the commit of a run

SUITE = """
import wrapping

def plain(x):
    return x + 1

layer = wrapping.wrapped(plain)

MARKS

def test_step(tf_profile):
    def step(x):
        for _ in range(40):
            x = layer(x)
        return x

    tf_profile(step, DATA, **STEP_ARGUMENTS)
"""
PLAIN = """
def wrapped(function):
    return function
"""
PLANTED = """
def wrapped(function):

    def inject_argument_info(x):
        return function(x)

    return inject_argument_info
"""
OUTER = "wrapped." if sys.version_info >= (3, 11) else ""  # the first with qualified names of code
ADDED = f"+40 calls of wrapping.py:{OUTER}inject_argument_info a step (0 → 40), line 4"


def write(suite, wrapping, marks=""):
    (suite.path / "wrapping.py").write_text(wrapping)
    suite.write(SUITE.replace("MARKS", marks))


def recorded(suite, marks=""):
    write(suite, PLAIN, marks)
    suite("--tfperf-update").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marks", "outcome", "said"),
    [
        pytest.param("", "passed", [], marks=pytest.mark.full),
        (
            "pytestmark = pytest.mark.tfperf(max_python_calls_regression='1%')",
            "failed",
            ["*python_calls rose from *", f"*{ADDED}*"],
        ),
    ],
)
def test_more_calls_fail_a_test_that_limits_them(suite, monkeypatch, marks, outcome, said):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(suite.path)
    recorded(suite, marks)
    write(suite, PLANTED, marks)
    result = suite("--tfperf-baseline", "--tfperf-only=structural", "--tfperf-report=run.json")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(said)
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    [found] = [check for check in test["checks"] if check["metric"] == "python_calls"]
    assert found["detail"]["after"] == found["detail"]["before"] + 40
    assert found["details"][0][1].startswith(ADDED)


LOGGING = """
import json

def step(x):
    for row in range(ROWS):
        json.dumps({"row": row})
    return x + 1

def test_step(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)
"""


def test_many_more_calls_fail_a_test_that_limits_nothing(suite, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    suite.regresses(
        LOGGING.replace("ROWS", "1"),
        LOGGING.replace("ROWS", "300"),
        "test_step: python_calls rose from *",
        "  +299 calls of json/encoder.py:* a step (1 → 300)*",
        "  if intended: pytest --tfperf-update",
    )
