"""Errors of steps of JAX: the user's arrive unchanged, and the next profile works."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_tfperf.capture.sessions import Session, user_session_runs
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import synchronise

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
X = np.ones((8, 8), "float32")
product = jax.jit(lambda x: x @ x)


@pytest.fixture(autouse=True)
def a_next_profile_works(tf_profile):
    yield
    assert not user_session_runs()
    assert tf_profile(lambda: product(X), name="next", **FEW).xla_launches == 1


def test_a_buffer_that_was_donated(tf_profile):
    double, x = jax.jit(lambda x: x * 2, donate_argnums=0), jnp.ones(100)
    with pytest.raises((ValueError, RuntimeError), match="deleted") as caught:
        tf_profile(lambda: double(x), **FEW)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("n_good", [0, 1, 5, 17])
def test_a_callback_that_raises_in_any_window(tf_profile, n_good):
    seen = []

    def fails(x):
        seen.append(x)
        if len(seen) > n_good:
            raise RuntimeError("planted")
        return x

    step = jax.jit(lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct((3,), "float32"), x))
    with pytest.raises(Exception, match="planted"):
        tf_profile(lambda: step(np.ones(3, "float32")), **FEW)


def test_the_output_of_a_failed_step_raises_where_devices_are_waited_for():
    def fails(_):
        raise RuntimeError("planted")

    step = jax.jit(lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct((3,), "float32"), x))
    with pytest.raises(Exception, match="planted"):
        synchronise({"loss": step(np.ones(3, "float32")), "step": 1})
    synchronise({"loss": product(X), "step": 1})


def test_a_profiler_of_the_user_is_named(tf_profile, tmp_path):
    refused = pytest.raises(CaptureError, match=r"jax\.profiler\.start_trace")
    with jax.profiler.trace(str(tmp_path)), refused:
        tf_profile(lambda: product(X), **FEW)


def test_a_trace_that_cannot_be_written_is_named(tf_profile, tmp_path):
    session = Session(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "plugins").write_text("a file, where the trace needs a folder")
    with pytest.raises(CaptureError, match=r"JAX.s profiler could not write its trace: .*plugins"):
        session.stop()
