"""`tfperf capture` of jobs of TensorFlow and JAX at the same time, by the servers of their profilers."""

import json

import pytest
from helpers.running_jobs import jobs_alone

from pytest_tfperf.cli.main import main

pytestmark = pytest.mark.usefixtures("processes")


@pytest.mark.imports("jax")
def test_a_running_job_of_jax_is_captured_and_checked_at_once(tmp_path, capsys):
    with jobs_alone("JAX") as addresses:
        words = [*addresses, "--ms", "1000", "-o", str(tmp_path), "--check"]
        assert main(["capture", *words, "--max-xla-compiles", "0"]) == 0
        assert main(["capture", *words, "--max-xla-launches", "0"]) == 1
    assert "FAIL: xla_launches is 1" in capsys.readouterr().out


@pytest.mark.full
def test_jobs_of_tensorflow_and_jax_at_the_same_time(tmp_path, capsys):
    frameworks = ["TensorFlow", "JAX"]
    with jobs_alone(*frameworks) as addresses:
        words = [",".join(addresses), "--ms", "500", "-o", str(tmp_path), "--json"]
        assert main(["capture", *words]) == 0
        traces = json.loads(capsys.readouterr().out)["traces"]
    assert len(traces) == 2
    for trace, framework in zip(traces, frameworks, strict=True):
        assert main(["analyze", trace]) == 0
        printed = capsys.readouterr().out
        assert f": {framework}, " in printed
        assert main(["analyze", trace, "--json"]) == 0
        [profile] = json.loads(capsys.readouterr().out)["profiles"]
        assert 10 < len(profile["steps"]) <= 100
        assert profile["metrics"]["xla_launches"]["value"] == 1
        assert profile["metrics"]["xla_compiles"]["value"] == 0
