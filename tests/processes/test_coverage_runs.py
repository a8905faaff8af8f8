"""Runs of real pytest under pytest-cov: limits on times are decided, and the report has the lines of the step."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes"), pytest.mark.imports("jax")]
MODEL = """
import jax
import jax.numpy as jnp

double = jax.jit(lambda x: x * 2)

def step(x):
    total = 0
    for _ in range(3):
        total = total + double(x)
    return total

def never():
    return 0
"""
SUITE = """
import jax.numpy as jnp
import pytest
from model import step

@pytest.mark.tfperf(max_step_time="10 s", min_throughput=0.001, max_input_bound="99%", max_retraces=0)
def test_step(tf_profile):
    tf_profile(step, [jnp.ones((8, 4))] * 4, warmup=3, steps=12, trace_steps=6)
"""
CORES = ["ctrace", *(["sysmon"] if sys.version_info >= (3, 12) else [])]


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_limit_on_a_time_is_decided_under_coverage(tmp_path, core, workers):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "test_model.py").write_text(SUITE)
    options = "-q --cov=model --cov-report=json:cov.json"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env=environ | {"COVERAGE_CORE": core},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "cov.json").read_text())["files"]["model.py"]
    assert seen["missing_lines"] == [14]  # of `never`
