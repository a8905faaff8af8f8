"""Steps that keep state in Python: what they call on arrays is compiled, and the rest stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.remedies.inner import InnerFunctions, InnerJit
from pytest_tfperf.remedies.remedy import Call, DoesNotApply
from pytest_tfperf.remedies.trial import try_remedies

X = np.ones((4, 4), "float32")
WEIGHTS = tf.Variable(tf.ones((4, 4)) / 8)
LOSSES = []


def core(x):
    return tf.reduce_sum(tf.tanh(x @ WEIGHTS))


def note(loss):
    LOSSES.append(float(loss))


def step_of_tensorflow():
    loss = core(tf.constant(X))
    note(loss)
    return loss


class Trainer:
    def __init__(self):
        self.weights = jnp.ones((4, 4)) / 8

    def update(self, weights, x, rate=0.5):
        return weights - rate * jnp.tanh(x @ weights), weights.sum()

    def step(self):
        self.weights, loss = self.update(self.weights, X)
        return loss


def call_of(step, framework, work=("it keeps state",)):
    return Call(step=step, framework=framework, seen={"work": frozenset(work)})


def outputs_of(call, n=3):
    with call.during():
        return [float(call.step()) for _ in range(n)]


def test_a_method_is_compiled_for_its_object_and_put_back():
    before, plain = Trainer(), Trainer.update
    call, remedy = call_of(Trainer().step, JAX), InnerJit()
    changed = remedy.apply(call)
    assert remedy.write(call).endswith("  self.update = jax.jit(self.update)")
    assert "test_inner.py:" in remedy.write(call)
    np.testing.assert_allclose(outputs_of(changed), outputs_of(Call(step=before.step)), rtol=1e-5)
    assert Trainer.update is plain


def test_a_function_of_tensors_is_compiled_and_one_of_python_is_not():
    call, remedy = call_of(step_of_tensorflow, TENSORFLOW), InnerFunctions()
    changed, plain = remedy.apply(call), core
    assert not LOSSES  # the first look has put it back
    assert remedy.write(call).endswith("  @tf.function")
    assert len(set(outputs_of(changed))) == 1
    assert len(LOSSES) == 3
    LOSSES.clear()
    assert core is plain


@pytest.mark.parametrize(
    ("remedy", "step", "framework"),
    [(InnerJit(), Trainer().step, JAX), (InnerFunctions(), step_of_tensorflow, TENSORFLOW)],
)
def test_a_step_that_can_be_compiled_whole_needs_none(remedy, step, framework):
    with pytest.raises(DoesNotApply):
        remedy.apply(call_of(step, framework, work=()))


@pytest.mark.full
def test_it_is_the_best_where_the_whole_step_would_lose_its_state():
    trainer = Trainer()
    found = try_remedies(Call(step=trainer.step, framework=JAX), 30.0)
    rows = {one.remedy: one for one in found}
    assert rows[InnerJit.name].is_fair
    whole = rows["@jax.jit"]
    assert "the change of self.weights" in whole.dropped or whole.why
    assert found.best.remedy != "@jax.jit"
    assert not isinstance(trainer.weights, jax.core.Tracer)
