"""Runs that are stopped, and tests in an order of chance."""

import json

import pytest
from helpers.runs_within import MANY, measure_with_stand_in

SHUFFLED = """
import random

def pytest_collection_modifyitems(items):
    random.Random(7).shuffle(items)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest, and gives what it printed and the tests of its run file by their names."""
    measure_with_stand_in(monkeypatch)
    options = "-p", "no:cacheprovider", "--tfperf-report=run.json"

    def run(*arguments):
        done = pytester.runpytest_inprocess(*options, *arguments, no_reraise_ctrlc=True)
        tests = json.loads((pytester.path / "run.json").read_text())["tests"]
        return done, {test["key"]: test for test in tests}

    return run


def test_an_order_of_chance_changes_nothing(run, pytester):
    pytester.makepyfile(test_a=MANY.format(first=0))
    _, expected = run()
    pytester.makeconftest(SHUFFLED)
    _, found = run()
    assert list(found) != list(expected)
    assert {key: test["checks"] for key, test in found.items()} == {
        key: test["checks"] for key, test in expected.items()
    }


STOPS = """
import os

import pytest

@pytest.mark.tfperf(max_retraces=0)
@pytest.mark.parametrize("n", range(9))
def test_step(tf_profile, n):
    if n == 4 and "STOP" in os.environ:
        {stop}
    tf_profile(0.5, retraces=0)
"""


@pytest.mark.parametrize(
    ("stop", "arguments", "status"),
    [
        ("raise KeyboardInterrupt", [], pytest.ExitCode.INTERRUPTED),
        ("assert 0", ["-x"], pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["Ctrl-C", "the first failure"],
)
def test_a_run_that_is_stopped_reports_what_was_measured_and_calls_no_baseline_unused(
    run, pytester, monkeypatch, stop, arguments, status
):
    pytester.makepyfile(STOPS.format(stop=stop))
    run("--tfperf-update")
    monkeypatch.setenv("STOP", "1")
    done, found = run("--tfperf-baseline", "--tfperf-only=structural", *arguments)
    assert done.ret == status
    assert sorted(key for key, test in found.items() if test["outcome"] == "passed") == [
        f"test_step[{n}]" for n in range(4)
    ]
    assert "unused baseline" not in done.stdout.str()
