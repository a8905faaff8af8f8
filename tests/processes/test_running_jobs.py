"""Jobs of several real TensorFlow processes, traced from outside."""

import json
from pathlib import Path

import pytest
from helpers.running_jobs import running_job

from pytest_tfperf.cli.main import main

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
AN_HOUR_AHEAD = {
    "LD_PRELOAD": str(FAKETIME),
    "FAKETIME": "+1h",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}

SUITE = """
import pytest

@pytest.mark.parametrize("n", range(4))
@pytest.mark.tfperf(max_retraces=0, max_step_time="10 s", max_step_skew="10000%")
def test_job(tf_profile, n):
    first = tf_profile.capture({job!r}, ms=500)
    assert len(tf_profile.profiles) == 2
    assert first.step_skew > 0
"""


@pytest.mark.parametrize("options", [(), ("--tfperf-only=structural",)], ids=["timed", "counted"])
def test_tests_of_four_workers_of_xdist_trace_the_same_job_one_after_the_other(pytester, options):
    """Those that are timed run alone anyway; those that are counted wait in `capture`."""
    with running_job({}, {}) as job:
        pytester.makepyfile(SUITE.format(job=",".join(job)))
        always = ("-n4", "-p", "no:cacheprovider", "--tfperf-report=run.json")
        result = pytester.runpytest_subprocess(*always, *options)
    result.assert_outcomes(passed=4)
    tests = json.loads((pytester.path / "run.json").read_text())["tests"]
    n_checks = 2 if options else 6  # limits on both workers, of one structural metric
    assert [len(test["checks"]) for test in tests] == [n_checks] * 4
    assert {check["verdict"] for test in tests for check in test["checks"]} == {"PASS"}


@pytest.mark.skipif(not FAKETIME.is_file(), reason="needs libfaketime: apt-get install faketime")
def test_a_worker_whose_clock_is_an_hour_ahead_is_aligned_by_its_steps(tmp_path, capsys):
    log = str(tmp_path / "log")
    with running_job({}, AN_HOUR_AHEAD) as job:
        assert main(["capture", ",".join(job), "--ms", "1500", "-o", log, "--all", "--json"]) == 0
    traces = [Path(trace) for trace in json.loads(capsys.readouterr().out)["traces"]]
    assert main(["analyze", log, "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    for profile in profiles:
        skew = profile["metrics"]["step_skew"]
        assert skew["value"] > 0
        assert skew["detail"]["where"] == f"the slowest host is {traces[1]}"
        assert skew["detail"]["n_steps"] > 1
        assert max(step["period_s"] for step in profile["steps"]) < 10
    timeline = tmp_path / "timeline.json"
    assert main(["export", log, "-o", str(timeline)]) == 0
    events = json.loads(timeline.read_text())["traceEvents"]
    assert max(one.get("ts", 0) for one in events) < 60e6  # microseconds
