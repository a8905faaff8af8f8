"""What a run leaves in pytest's cache, and `tfperf show --last` makes of it; without TensorFlow."""

import os

import pytest
from helpers.paths import TESTS

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
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "100")
    pytester.makepyfile(test_suite=SUITE)
    return lambda *arguments: pytester.runpytest_subprocess(
        "-p", "helpers.fake_profiler", *arguments
    )


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_run_is_kept_and_shown_from_a_folder_below(run, pytester, workers, capsys, monkeypatch):
    run(*workers).assert_outcomes(passed=2, failed=1)
    capsys.readouterr()
    folder = pytester.path / ".pytest_cache" / "d" / "tfperf"
    assert [path.name for path in folder.iterdir()] == ["last_run.json"]
    inner = pytester.path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert main(["show", "--last"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("last run: 2 tests, 2")
    assert any(line.startswith("FAIL ") for line in lines)
    assert main(["report", "--last", "-o", "perf.html"]) == 0
    assert "retraces is 2" in (inner / "perf.html").read_text("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [("-p", "no:cacheprovider"), ("-k", "other"), ("--collect-only",)],
    ids=["no cache", "nothing profiled", "collected only"],
)
def test_other_runs_keep_nothing(run, pytester, arguments):
    run(*arguments)
    assert not (pytester.path / PLACE).exists()


def test_a_run_that_profiles_nothing_leaves_the_last_one(run, pytester):
    run("-k", "step")
    before = (pytester.path / PLACE).read_bytes()
    run("-k", "other")
    assert (pytester.path / PLACE).read_bytes() == before
