"""What a run leaves in pytest's cache, and `tfperf show --last` makes of it; without TensorFlow."""

import os

import pytest
from helpers.paths import TESTS
from helpers.runs_within import measure_with_stand_in

from pytest_tfperf.cli.main import main

PLACE = ".pytest_cache/d/tfperf/last_run.json"
SUITE = """
import pytest

@pytest.mark.tfperf(max_retraces=0)
@pytest.mark.parametrize("retraces", [0, 2])
def test_step(tf_profile, retraces):
    tf_profile(0.5, retraces=retraces)

def test_other():
    pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    measure_with_stand_in(monkeypatch)
    monkeypatch.setenv("COLUMNS", "100")
    pytester.makepyfile(test_suite=SUITE)
    return pytester.runpytest_inprocess


def check_it_is_kept_and_shown_from_a_folder_below(root, capsys, monkeypatch):
    capsys.readouterr()
    folder = root / ".pytest_cache" / "d" / "tfperf"
    assert [path.name for path in folder.iterdir()] == ["last_run.json"]
    inner = root / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert main(["show", "--last"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("last run: 2 tests, 2")
    assert any(line.startswith("FAIL ") for line in lines)
    assert main(["report", "--last", "-o", "perf.html"]) == 0
    assert "retraces is 2" in (inner / "perf.html").read_text("utf-8")


def test_a_run_is_kept_and_shown_from_a_folder_below(run, pytester, capsys, monkeypatch):
    run().assert_outcomes(passed=2, failed=1)
    check_it_is_kept_and_shown_from_a_folder_below(pytester.path, capsys, monkeypatch)


@pytest.mark.full
def test_a_run_with_workers_is_kept_too(run, pytester, capsys, monkeypatch, processes):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    done = pytester.runpytest_subprocess("-p", "helpers.fake_profiler", "-n2")
    done.assert_outcomes(passed=2, failed=1)
    check_it_is_kept_and_shown_from_a_folder_below(pytester.path, capsys, monkeypatch)


def test_other_runs_keep_nothing(run, pytester):
    """Runs without a cache, runs that profile nothing, and those that only collect."""
    for arguments in (("-p", "no:cacheprovider"), ("-k", "other"), ("--collect-only",)):
        run(*arguments)
        assert not (pytester.path / PLACE).exists(), arguments
