"""Tests and runs as pytest, unittest and other plugins make them: cases, skips, deselections, no terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.runs_within import measure_with_stand_in

TESTS = Path(__file__).parents[2]


@pytest.fixture
def run(pytester, monkeypatch):
    """Write a file of tests, and run it."""
    measure_with_stand_in(monkeypatch)

    def run(tests, *arguments):
        pytester.makepyfile(test_suite=tests)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run


CASES = """
import pytest

@pytest.mark.parametrize("n", [1, pytest.param(8, marks=pytest.mark.tfperf({case}))])
@pytest.mark.tfperf({function})
def test_step(tf_profile, n):
    tf_profile(0.5, retraces=2, eager_ops=1)
"""


@pytest.mark.parametrize(
    ("function", "case", "failed"),
    [
        ("max_retraces=3", "max_retraces=1", 1),  # the case wins
        ("max_retraces=1", "max_retraces=3", 1),
        ("max_retraces=3", "max_eager_ops=0", 1),  # both hold
        ("max_retraces=1", "max_eager_ops=1", 2),
    ],
)
def test_the_limits_of_a_case_go_before_those_of_its_function(run, function, case, failed):
    done = run(CASES.format(function=function, case=case))
    done.assert_outcomes(passed=2 - failed, failed=failed)


TEST_CASES = """
import unittest, pytest

class TestSteps(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def profiler(self, tf_profile):
        self.tf_profile = tf_profile

    @pytest.mark.tfperf(max_retraces=0)
    def test_skipped(self):
        self.skipTest("not here")

    @pytest.mark.tfperf(max_retraces=0)
    def test_wrong(self):
        self.tf_profile(0.5, retraces=1)
        self.assertEqual(1, 2)

    @pytest.mark.tfperf(max_retraces=0)
    def test_slow(self):
        self.tf_profile(0.5, retraces=1)
"""


def test_a_test_case_that_ended_early_is_not_judged(run):
    done = run(TEST_CASES)
    done.assert_outcomes(failed=2, skipped=1)
    done.stdout.fnmatch_lines(["FAILED *::test_wrong - AssertionError: 1 != 2"])
    done.stdout.fnmatch_lines(["PERF *::test_slow - retraces is 1*"])
    done.stdout.no_fnmatch_line("PERF *::test_wrong*")
    assert "UNKNOWN" not in done.stdout.str()


FINISHED = """
def pytest_collection_finish(session):
    print("prepared", session.config.pluginmanager.has_plugin("tfperf-controller"))
"""


def test_a_run_is_prepared_before_its_first_test_case(run, pytester):
    pytester.makeconftest(FINISHED)
    run(TEST_CASES, "--collect-only").stdout.fnmatch_lines(["*prepared True*"])


XPASSED = """
import pytest

@pytest.mark.xfail
@pytest.mark.tfperf(max_regression="2%")
def test_step(tf_profile):
    tf_profile(0.5)
"""


def test_an_unexpected_pass_stays_one_where_a_check_is_undecided(run):
    done = run(XPASSED)
    done.assert_outcomes(xpassed=1)


THREE = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_step(tf_profile, n):
    tf_profile(0.5)
"""
DESELECTS = """
import os

def pytest_collection_modifyitems(config, items):
    if "FEWER" in os.environ:
        config.hook.pytest_deselected(items=items[1:])
        del items[1:]
"""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("workers", [(), pytest.param(("-n1",), marks=pytest.mark.full)])
def test_entries_of_deselected_tests_are_not_unused(pytester, monkeypatch, workers):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    pytester.makepyfile(test_suite=THREE)
    pytester.makeconftest(DESELECTS)
    run = pytester.runpytest_subprocess
    options = "-p", "helpers.fake_profiler", "--tfperf-only=structural"
    run(*options, "--tfperf-update").assert_outcomes(passed=3)
    monkeypatch.setenv("FEWER", "1")
    done = run(*options, "--tfperf-baseline", *workers)
    assert "unused baseline" not in done.stdout.str()
    pytester.makeconftest("")
    pytester.makepyfile(test_suite=THREE.replace("3", "1"))
    assert "unused baseline" in run(*options, "--tfperf-baseline", *workers).stdout.str()


@pytest.mark.usefixtures("processes")
def test_without_the_terminal_of_pytest_tests_fail_as_ever(pytester):
    pytester.makepyfile("def test_step():\n    assert 0")
    run = [sys.executable, "-m", "pytest", "-p", "no:terminal"]
    done = subprocess.run(run, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (pytest.ExitCode.TESTS_FAILED, "")
