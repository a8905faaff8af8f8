"""The self-check of a process, on real TensorFlow and through the plugin."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from pytest_tfperf.capture import sessions
from pytest_tfperf.capture.sessions import _checked, xla_shown
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.tensorflow import TensorFlow
from pytest_tfperf.plugin import profiles
from pytest_tfperf.recording import XlaShown

OF_XLA = ("xla_clusters", "xla_launches", "fusions", "xla_compile_time", "xla_compiles")


@pytest.fixture
def eager_functions():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_executions_compilations_and_hlo_show():
    assert _checked(TensorFlow(), None) == XlaShown()


def test_they_show_where_functions_run_eagerly(eager_functions):
    assert _checked(TensorFlow(), None) == XlaShown()


def test_callbacks_of_the_user_see_the_step_alone(profile, monkeypatch):
    seen = []

    def seeing(op_type, *_, **__):
        seen.append(op_type.decode() if isinstance(op_type, bytes) else op_type)

    step, data = tf.function(lambda x: x @ x), [tf.ones((4, 4))] * 4
    op_callbacks.add_op_callback(seeing)
    monkeypatch.setattr(TensorFlow, "has_started", False)
    try:
        TensorFlow().start_devices()
        assert _checked(TensorFlow(), None) == XlaShown()
        found = profile(step, data)
        assert (found.graph_ops, found.flops) == (1, 2 * 4**3)
        assert found.value("peak_memory").number
    finally:
        op_callbacks.remove_op_callback(seeing)
    called = step.get_concrete_function(data[0]).name.decode()
    assert set(seen) <= {"Placeholder", "MatMul", "Identity", called}  # as traced, and the calls


def test_a_process_is_checked_once(monkeypatch, tmp_path):
    found = xla_shown()
    monkeypatch.setattr(sessions, "_checked", lambda *_: pytest.fail("checked again"))
    assert xla_shown(tmp_path) == found == {"TensorFlow": XlaShown()}


def test_nothing_is_checked_in_a_graph_of_old():
    with tf.Graph().as_default(), tf.compat.v1.Session():
        assert xla_shown() == {}
    assert xla_shown() == {"TensorFlow": XlaShown()}


def test_a_trace_that_cannot_be_written_shows_nothing(monkeypatch):
    def fails(session):
        raise CaptureError("the disk is full")

    monkeypatch.setattr(sessions.Session, "stop", fails)
    assert "the disk is full" in _checked(TensorFlow(), None).executions
    monkeypatch.undo()
    assert _checked(TensorFlow(), None) == XlaShown()  # no session was left running


def test_what_does_not_show_is_unknown_and_no_pass(profile, monkeypatch):
    shown = XlaShown(executions="hidden", compilations="hidden", modules="hidden")
    monkeypatch.setattr(profiles, "xla_shown", lambda scratch: {"TensorFlow": shown})
    found = profile(tf.function(tf.tanh), [tf.ones((4, 4))] * 4)
    assert {name: found.value(name).why for name in OF_XLA} == dict.fromkeys(OF_XLA, "hidden")
