"""A wall clock that jumps by an hour with each call, to and fro, in all processes: durations and verdicts are as ever."""

import json

import pytest
from helpers.paired_project import Project

CONFTEST = """
import itertools, time

leads, real, real_ns = itertools.cycle([3600.0, -3600.0]), time.time, time.time_ns
time.time = lambda: real() + next(leads)
time.time_ns = lambda: real_ns() + int(next(leads) * 1e9)
"""
SUITE = """
import model

def test_slower(tf_profile):
    tf_profile(1.2 * model.SECONDS)

def test_same(tf_profile):
    tf_profile(1.0)
"""


@pytest.mark.nightly
def test_a_paired_run_and_a_baseline(tmp_path, processes):
    there = {
        "conftest.py": CONFTEST,
        "test_suite.py": SUITE,
        "src/model.py": "SECONDS = 1.0\n",
    }
    project = Project(tmp_path, there, {"src/model.py": "SECONDS = 1.1\n"})
    run = project.run()
    assert run.status == 1
    verdicts = {name: run.checks(name)["", "step_time"][0] for name in ("test_slower", "test_same")}
    assert verdicts == {"test_slower": "REGRESSION", "test_same": "PASS"}
    assert run.checks("test_slower")["", "step_time"][1].startswith("step_time is 10 % slower")
    [check] = [one for one in run.record("test_slower")["checks"] if one["kind"] == "against"]
    assert all(0 <= pair["spent_s"] < 300 for pair in check["detail"]["process_pairs"])
    assert len(check["detail"]["process_pairs"]) >= 2
    for _ in range(2):
        assert project.run("--tfperf-update", against=None).status == 0
    assert project.run("--tfperf-baseline", against=None).status == 0
    [path] = (project.path / "__tfperf__" / "timing").iterdir()
    for entry in json.loads(path.read_text())["tests"].values():
        dates = [one["created"] for one in entry["runs"]]
        assert dates == sorted(dates)
