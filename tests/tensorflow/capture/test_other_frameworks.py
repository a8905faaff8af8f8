"""A step of another framework is an error in every form, and one of TensorFlow beside it is not."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import in_use, other_frameworks
from pytest_tfperf.frameworks.jax import jax_computes

FEW = {"warmup": 2, "steps": 4, "trace_steps": 2}
REFUSED = "^the step ran no TensorFlow op; PyTorch is loaded, and tfperf measures TensorFlow and JAX only$"
ONES = np.ones(3, "float32")


@pytest.fixture
def torch(monkeypatch):
    """A module of this name, which computes with NumPy."""
    module = ModuleType("torch")
    module.add = np.add
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def in_a_thread(step):
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()


def test_a_call_and_a_loop_and_a_trace_are_refused(profile, torch):
    with pytest.raises(CaptureError, match=REFUSED):
        profile(lambda: torch.add(ONES, 1), name="call", latency=True, **FEW)
    with pytest.raises(CaptureError, match=REFUSED):
        for batch in profile.steps([ONES], name="loop", **FEW):
            torch.add(batch, 1)
    with pytest.raises(CaptureError, match=REFUSED), profile.trace("trace") as trace:
        for _ in range(3):
            with trace.step():
                torch.add(ONES, 1)
    with pytest.raises(CaptureError, match=REFUSED):
        profile.compare({"a": lambda: torch.add(ONES, 1), "b": lambda: torch.add(ONES, 2)})


def test_steps_of_tensorflow_are_profiled_beside_it(profile, torch):
    x = tf.constant(ONES)
    function = tf.function(lambda: x + 1)
    steps = {
        "eager": lambda: x + 1,
        "function": function,
        "compiled": tf.function(lambda: x + 1, jit_compile=True),
        "thread": lambda: in_a_thread(function),
    }
    for name, step in steps.items():
        assert profile(step, name=name, **FEW).retraces == 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        y = tf.compat.v1.placeholder("float32", [3]) + 1
        feed = {y.op.inputs[0]: ONES}
        assert profile(lambda: session.run(y, feed), name="session", **FEW).retraces == 0


def test_without_another_framework_the_times_are_known(profile):
    result = profile(lambda: np.add(ONES, 1), **FEW)
    assert result.step_time > 0
    assert result.value("retraces").why == "the step ran no TensorFlow op"
    assert result.value("flops").number is None
    assert "the step ran no TensorFlow op: counts of it are unknown" in result.notes


def test_the_marker_alone_names_it(suite, torch):
    suite.gives(
        """
@pytest.mark.tfperf(max_retraces=0)
def test_it():
    np.ones(3) + 1
""",
        "no step found in this test: * PyTorch is loaded, and tfperf measures TensorFlow and JAX only*",
        failed=1,
    )


def test_jax_is_in_use_from_its_first_device_on(monkeypatch):
    """TensorFlow loads JAX wherever it is installed."""
    bridge = "jax._src.xla_bridge"
    for name in ("torch", "jax", bridge):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert not jax_computes()
    jax = SimpleNamespace(jit=None, __version__="0.10.2")
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, bridge, SimpleNamespace(_backends={}))
    assert not jax_computes()
    assert [framework.name for framework in in_use()] == ["TensorFlow"]
    monkeypatch.setitem(sys.modules, bridge, SimpleNamespace(_backends={"cpu": object()}))
    assert jax_computes()
    assert [framework.name for framework in in_use()] == ["TensorFlow", "JAX"]
    jax.__version__ = "0.5.3"
    with pytest.raises(CaptureError, match=r"needs JAX 0\.6\.1 or newer, and this is 0\.5\.3"):
        in_use()
    monkeypatch.setitem(sys.modules, bridge, SimpleNamespace())  # another version of it
    assert jax_computes()
    assert other_frameworks() == ()
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert other_frameworks() == ("PyTorch",)
