"""Real JAX and PyTorch, in processes of their own: alone, beside TensorFlow, and under Keras."""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import version

import pytest
from helpers.paths import SUITES

from pytest_tfperf.cli.main import main

pytestmark = pytest.mark.usefixtures("processes")
FOLDER = SUITES / "frameworks"
ONLY_JAX = {"limits", "four_devices errors", "forms threads"}
"""Modules whose tests import no other framework."""
PLUGINS = "pytest_tfperf.plugin.hooks", "loaded_frameworks", "no:unraisableexception"
"""The last leaves out a plugin of pytest that collects all garbage five times at the end."""
PYTEST = ("pytest", "-q", *(word for name in PLUGINS for word in ("-p", name)))
TWO = "--xla_force_host_platform_device_count=2"
QUICK = ("-o", "tfperf_max_seconds=1")
"""Comparisons of one round of turns, without an interval."""
NO_TORCH = "PyTorch is not installed: its usual build takes gigabytes"
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "JAX_PLATFORMS": "cpu"}


@pytest.mark.imports("jax")
def test_a_broken_limit_fails_a_test_of_jax_and_says_why():
    printed = printed_by("limits", "1 failed, 1 passed")
    assert "retraces is 5, above the limit of 0 (max_retraces=0)" in printed
    assert "stopped after 6 steps, each traced again" in printed
    assert "(x f32[1] → f32[2], x f32[2]" in printed
    assert "PERF limits.py::test_another_shape_in_each_step" in printed
    assert printed.splitlines()[-1] == "imported: jax"


@pytest.mark.full
def test_backends_of_keras():
    """The process of the test runs no model: it loads the backend that Keras is told to use, alone."""
    environment = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    printed = printed_by("backends", "1 passed", *QUICK, **environment)
    assert printed.splitlines()[-1] == "imported: jax keras"


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)
def test_pytorch_is_loaded_and_not_tensorflow_if_keras_is_told_to_use_it():
    done = run("named_backend.py", KERAS_BACKEND="torch")
    assert "1 passed" in done.stdout
    imported = done.stdout.splitlines()[-1].removeprefix("imported: ").split()
    assert {"torch", "keras"} <= set(imported)
    assert "tensorflow" not in imported


@pytest.mark.full
@pytest.mark.parametrize(
    ("modules", "n_tests"),
    [
        ("four_devices errors", 14),
        ("forms threads", 14),
        ("keras_on_jax", 9),
        pytest.param("keras_on_torch", 5, marks=pytest.mark.nightly),
        ("beside_tensorflow known_metrics", 15),
    ],
)
def test_steps(modules, n_tests, tmp_path):
    """A report asks for all metrics; those of TensorFlow's graphs must not import it."""
    report = f"--tfperf-report={tmp_path / 'run.json'}"
    quick = QUICK if modules == "forms threads" else ()
    printed = printed_by(modules, f"{n_tests} passed", report, *quick)
    if modules in ONLY_JAX:
        assert printed.splitlines()[-1] == "imported: jax"


def printed_by(modules, outcomes, *arguments, **environment):
    """Check the outcomes of some modules in one process, since imports take seconds; return what it prints."""
    if modules == "keras_on_torch" and importlib.util.find_spec("torch") is None:
        pytest.skip(NO_TORCH)
    if modules != "keras_on_torch" and version("jax").startswith("0.6."):
        pytest.skip("JAX 0.6 traces no execution on a CPU, so its counts are unknown")
    done = run(*arguments, *(f"{one}.py" for one in modules.split()), **environment)
    summary = rf"^{outcomes}(, \d+ warnings?)? in "
    assert re.search(summary, done.stdout, re.M), done.stdout[-5000:] + done.stderr[-2000:]
    assert done.returncode == ("failed" in outcomes), done.stderr[-2000:]
    return done.stdout


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", *PYTEST, *arguments],
        cwd=FOLDER,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.full
def test_switches_of_jax_that_the_plugin_s_own_work_does_not_obey():
    for switch in ("guards", "disable_jit"):
        printed_by("switches", "3 passed, 1 skipped", SWITCH=switch)
    printed_by("switches", "4 passed", SWITCH="contexts")


@pytest.mark.full
def test_a_warm_cache_of_compiled_programs_changes_no_value(tmp_path):
    """It holds the user's programs alone: one for the first function, and two for the other."""
    (tmp_path / "cache").mkdir()
    found = []
    for _ in ("cold", "warm"):
        printed_by("cached", "1 passed", CACHE=str(tmp_path / "cache"))
        found.append(json.loads((tmp_path / "found.json").read_text()))
    cold, warm = found
    assert cold == warm
    assert None not in {*cold["alone"].values(), *cold["two"].values()}
    assert cold["entries"] == ["jit_alone", "jit_of_two_shapes", "jit_of_two_shapes"]


@pytest.mark.full
def test_a_marker_alone_around_the_first_step_of_jax_says_that_it_came_late():
    """TensorFlow was there before, and is traced alone; the next test is traced in both."""
    first, _, second = run("late_jax.py").stdout.partition("_ test_alone[True] _")
    assert "no step found in this test: JAX started in it, after the profiler" in first
    assert "retraces is 2, above the limit of 0" in second
    assert "<lambda> at late_jax.py:16 (x f32[1] → f32[2], x f32[2] → f32[3])" in second


@pytest.mark.full
def test_metrics_and_the_steps_that_the_marker_alone_finds(tmp_path):
    """The tests of both modules compile often, and share a process. Eight find no step, or fail limits."""
    report = f"--tfperf-report={tmp_path / 'run.json'}"
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    printed = printed_by("metrics marker_alone", "8 failed, 60 passed", report, **quick)
    assert printed.count("marker_alone.py::test_fails_") == 8
    assert printed.splitlines()[-1] == "imported: jax"
    for sentence in (
        "so also: xla_compiles 1 (above the limit of 0)",
        "traced again: step at marker_alone.py:88 (x f32[1,8] → f32[2,8]), in step 3",
        "retraces is 3, above the limit of 0",
        "(a new function of a line that was traced before) ×3, in step 1, 2, 3",
        "several functions (loss, model): which of them is the step",
        "several functions (<lambda> and its derivative)",
        "no step found in this test: it ran no Keras fit",
    ):
        assert printed.count(sentence) == 1, sentence
    assert printed.count("several functions (more than one is named <lambda>)") == 3


@pytest.mark.nightly
def test_processes_that_wait_for_each_other():
    """Neither holds the lock of the machine while it waits for the other's step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", *PYTEST]
    processes = [
        subprocess.Popen(
            [*command, "two_processes.py"],
            cwd=FOLDER,
            env={**ENVIRONMENT, "ADDRESS": address, "PROCESS": str(number), "XLA_FLAGS": TWO},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    try:
        printed = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [("2 passed" in text) for text in printed] == [True, True], printed


@pytest.mark.full
def test_a_saved_trace_of_calls_that_run_ahead_has_the_steps_of_their_work(tmp_path, capsys):
    """The clock brackets all of the work, and nothing else, so the steps together take as long at most."""
    done = subprocess.run(
        [sys.executable, FOLDER / "ahead.py", tmp_path],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    by_clock_s = float(done.stdout) * 25e-3
    assert main(["analyze", "--json", str(tmp_path)]) == 0
    steps = json.loads(capsys.readouterr().out)["profiles"][0]["steps"]
    assert len(steps) == 25
    assert by_clock_s / 2 < sum(step["period_s"] for step in steps) <= by_clock_s
