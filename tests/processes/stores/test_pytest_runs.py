"""Whole runs of pytest with a history: what they add, what they are compared with, and what goes wrong."""

import os
from pathlib import Path

import pytest
from helpers.git_repository import git, repository
from helpers.histories import run_at, store_of
from helpers.paths import TESTS

from pytest_tfperf.cli.main import main
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection

pytestmark = pytest.mark.usefixtures("processes")

SUITE = """
import pytest

@pytest.mark.parametrize("name", ["a", "b"])
def test_step(tf_profile, name):
    tf_profile({seconds}, retraces=0)
"""
STEP_TIMES = Selection(metrics=("step_time",))


@pytest.fixture
def history(tmp_path):
    return tmp_path / "history"


@pytest.fixture
def run(pytester, monkeypatch, history):
    """Run pytest on a repository on branch main, whose history has six runs of 0.5 s."""
    others = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *others]))
    project = repository(pytester.path / "project", {"test_suite.py": SUITE.format(seconds=0.5)})
    git(project, "branch", "-M", "main")
    monkeypatch.chdir(project)

    def start(*arguments, seconds=0.5, store=history):
        (project / "test_suite.py").write_text(SUITE.format(seconds=seconds))
        git(project, "add", "test_suite.py")
        git(project, "commit", "--allow-empty", "-qm", "change")
        options = ["-p", "helpers.fake_profiler", "-p", "no:cacheprovider"]
        chosen = [f"--tfperf-history={store}"] if store else []
        return pytester.runpytest_subprocess(
            *options, "-o", "tfperf_history_project=demo", *chosen, *arguments
        )

    return start


def recorded(history, n=6, step_time=0.5, **fields):
    """Runs of both tests in the history."""
    for name in ("a", "b"):
        store_of(
            *(
                run_at(minute, step_time, file="test_suite.py", key=f"test_step[{name}]", **fields)
                for minute in range(n)
            ),
            store=open_store(str(history)),
        )


def test_a_run_is_added_to_a_folder_and_shown(run, history, capsys):
    result = run("-k", "test_step")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["tfperf: run * of branch main added to the history of demo"])
    assert main(["history", "--store", str(history), "--project", "demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for test in ("test_step[a]", "test_step[b]"):
        assert any(test in line and "500 ms" in line for line in lines), test


@pytest.mark.full
def test_each_run_is_added_and_compared_with_those_of_the_branch(run, history):
    run("--tfperf-update", store=None).assert_outcomes(passed=2)
    recorded(history)
    recorded(history, step_time=9.0, branch="topic")
    recorded(history, step_time=9.0, outcome="failed")
    before = len(open_store(str(history)).rows(STEP_TIMES))
    result = run("--tfperf-baseline", "-n2", "-p", "xdist", seconds=0.6)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "test_step?b? is 20 % slower than the history: 500 ms to 600 ms, limit 5 %",
            "*if intended: pytest --tfperf-update on branch main with --tfperf-history*",
            "tfperf: run * of branch main added to the history of demo",
            "  later runs are not compared with test_step*, test_step*: the test failed",
        ]
    )
    added = open_store(str(history)).rows(STEP_TIMES)[before:]
    assert sorted((row.test, row.value, row.verdict, row.usable) for row in added) == [
        ("test_step[a]", 0.6, "REGRESSION", False),
        ("test_step[b]", 0.6, "REGRESSION", False),
    ]
    assert added[0].ratio == pytest.approx(1.2)
    assert added[0].ratio_low < 1.2 < added[0].ratio_high
    # a change that is meant is recorded once, and is the level from then on
    run("--tfperf-update", seconds=0.6).assert_outcomes(passed=2)
    timing = next(Path("__tfperf__/timing").iterdir()).read_text("utf-8")
    assert "0.6" not in timing  # the history keeps the times
    result = run("--tfperf-baseline", seconds=0.6)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["times: not decided in 2 tests; *"])


@pytest.mark.full
def test_without_runs_on_the_branch_it_says_so(run, history):
    run("--tfperf-update", store=None)
    recorded(history, branch="topic")
    result = run("--tfperf-baseline", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*step_time is 500 ms; no timing is stored for it*",
            "*try: runs of this machine class on branch main with --tfperf-history*",
        ]
    )


@pytest.mark.full
def test_a_history_that_cannot_be_reached_decides_nothing(run):
    run("--tfperf-update", store=None)
    for store, why in (
        ("postgresql://tester:secret@127.0.0.1:1/none", "*Connection refused*"),
        ("none://bucket/path", "history none://bucket/path: *none*"),
        ("/proc/none/history", "history /proc/none/history cannot be *"),
    ):
        result = run("--tfperf-baseline", "-v", "--tfperf-report=run.json", store=store)
        result.assert_outcomes(passed=2)  # as without it, and with a word
        result.stdout.fnmatch_lines(
            [f"tfperf: the run is not in the history: {why}; tfperf accept *run.json adds it later"]
        )
        assert "secret" not in result.stdout.str()
