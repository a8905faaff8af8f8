"""Real JAX and PyTorch, in processes of their own: alone, beside TensorFlow, and under Keras."""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from helpers.paths import SUITES

FOLDER = SUITES / "frameworks"


@pytest.mark.parametrize(
    ("module", "n_tests"),
    [
        ("metrics", 18),
        ("known_metrics", 3),
        ("forms", 7),
        ("four_devices", 5),
        ("errors", 6),
        ("beside_tensorflow", 6),
        ("keras_on_jax", 9),
        ("keras_on_torch", 4),
    ],
)
def test_steps(module, n_tests):
    passed(module, n_tests)


def passed(module, n_tests):
    """All tests of a module pass in a process of their own."""
    if module == "keras_on_torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: it takes gigabytes, and only Keras' users have it")
    if module != "keras_on_torch" and version("jax").startswith("0.6."):
        pytest.skip("JAX 0.6 traces no execution on a CPU, so its counts are unknown")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_tfperf.plugin.hooks", f"{module}.py"],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{n_tests} passed" in done.stdout


@pytest.mark.slow
def test_backends_of_keras():
    passed("backends", 2)
