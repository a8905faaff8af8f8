"""JAX that cannot compute: one sentence for each test, and the session goes on."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.full]
STEP = """
import pytest
{first}

def test_step(tf_profile):
    def step():
        import jax
        return jax.jit(lambda x: x + 1)(3)
    tf_profile(step, warmup=2, steps=3, trace_steps=2)

@pytest.mark.tfperf(max_retraces=0)
def test_alone():
    import jax
    jax.jit(lambda x: x + 1)(3)

def test_another():
    pass
"""
IMPORTED = "import jax"


def passed_and_said(tmp_path, first, **environment):
    """What pytest prints of a test of a step of JAX; the other test always passes."""
    (tmp_path / "test_step.py").write_text(STEP.format(first=first))
    known = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_tfperf.plugin.hooks", "test_step.py"],
        cwd=tmp_path,
        env={**os.environ, **known, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert "1 passed" in done.stdout
    return done.stdout


def stub(tmp_path, name, body):
    """A package of this name in front of all others; the value for PYTHONPATH."""
    package = tmp_path / "stubs" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(body)
    return os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize("platform", ["cuda", pytest.param("tpu", marks=pytest.mark.nightly)])
def test_a_platform_that_is_not_here(tmp_path, platform):
    said = passed_and_said(tmp_path, IMPORTED, JAX_PLATFORMS=platform)
    assert "CaptureError: JAX cannot start its devices: " in said
    assert "_\nJAX cannot start its devices: " in said  # the marker alone fails in its setup
    assert "JAX_PLATFORMS=" in said
    assert "xla_bridge.py" not in said  # no traceback of JAX


def test_jax_without_jaxlib_is_the_user_s_error(tmp_path):
    missing = "raise ModuleNotFoundError('no jaxlib here', name='jaxlib')"
    first = "try:\n    import jax\nexcept ModuleNotFoundError:\n    pass"
    said = passed_and_said(tmp_path, first, PYTHONPATH=stub(tmp_path, "jaxlib", missing))
    assert "jax requires jaxlib to be installed" in said or "no framework is loaded" in said


def test_a_version_that_is_too_old(tmp_path):
    old = "__version__ = '0.5.3'\njit = None"
    said = passed_and_said(tmp_path, IMPORTED, PYTHONPATH=stub(tmp_path, "jax", old))
    assert said.count("needs JAX 0.6.1 or newer, and this is 0.5.3") == 2
    assert "frameworks/jax.py" not in said  # no traceback of the plugin
    assert "pip install --upgrade jax" in said
