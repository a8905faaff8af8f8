"""Steps of TensorFlow that keep state in Python: what they call on tensors is compiled, and the rest stays."""

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies.inner import InnerFunctions
from pytest_tfperf.remedies.remedy import Call, DoesNotApply

X = np.ones((4, 4), "float32")
WEIGHTS = tf.Variable(tf.ones((4, 4)) / 8)
LOSSES = []


def core(x):
    return tf.reduce_sum(tf.tanh(x @ WEIGHTS))


def note(loss):
    LOSSES.append(float(loss))


def step():
    loss = core(tf.constant(X))
    note(loss)
    return loss


def call_of(*work):
    return Call(step=step, framework=TENSORFLOW, seen={"work": frozenset(work)})


def test_a_function_of_tensors_is_compiled_and_one_of_python_is_not():
    call, remedy, plain = call_of("the change of LOSSES"), InnerFunctions(), core
    changed = remedy.apply(call)
    assert not LOSSES  # the first look has put it back
    assert remedy.write(call).endswith("  @tf.function")
    assert ";" not in remedy.write(call)
    with changed.during():
        assert core is not plain
        outputs = [float(changed.step()) for _ in range(3)]
    assert outputs == LOSSES
    LOSSES.clear()
    assert core is plain


def test_a_step_that_can_be_compiled_whole_needs_none():
    with pytest.raises(DoesNotApply):
        InnerFunctions().apply(call_of())
