"""Real JAX, in processes of its own: it starts with a device, or beside TensorFlow, or under Keras."""

import os
import subprocess
import sys

import pytest
from helpers.paths import SUITES

FOLDER = SUITES / "jax_steps"


@pytest.mark.parametrize(
    ("module", "n_tests"),
    [("metrics", 17), ("forms", 7), ("beside_tensorflow", 6), ("keras_on_jax", 9)],
)
def test_steps_of_jax(module, n_tests):
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
