"""Steps of JAX that keep state in Python: what they call on arrays is compiled, and the rest stays."""

from contextlib import nullcontext

import numpy as np
import pytest

from pytest_tfperf.frameworks.framework import JAX
from pytest_tfperf.remedies.inner import InnerJit
from pytest_tfperf.remedies.remedy import Call, DoesNotApply
from pytest_tfperf.remedies.trial import try_remedies

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.imports("jax")

X = np.ones((4, 4), "float32")


class Trainer:
    def __init__(self):
        self.weights = jnp.ones((4, 4)) / 8

    def update(self, weights, x, rate=0.5):
        return weights - rate * jnp.tanh(x @ weights), weights.sum()

    def step(self):
        self.weights, loss = self.update(self.weights, X)
        return loss


def outputs_of(call):
    with call.during():
        return [float(call.step()) for _ in range(3)]


def test_a_method_is_compiled_for_its_object_and_put_back():
    plain, remedy = Trainer.update, InnerJit()
    call = Call(step=Trainer().step, framework=JAX, seen={"work": frozenset({"it keeps state"})})
    changed = remedy.apply(call)
    assert "test_inner_jax.py:" in remedy.write(call)
    assert remedy.write(call).endswith("  self.update = jax.jit(self.update)")
    wanted = outputs_of(Call(step=Trainer().step))
    np.testing.assert_allclose(outputs_of(changed), wanted, rtol=1e-5)
    assert Trainer.update is plain


def test_a_step_that_can_be_compiled_whole_needs_none():
    call = Call(step=Trainer().step, framework=JAX, seen={"work": frozenset()})
    with pytest.raises(DoesNotApply):
        InnerJit().apply(call)


@pytest.mark.full
def test_it_can_be_typed_where_the_whole_step_would_lose_its_state():
    trainer = Trainer()
    call = Call(step=trainer.step, framework=JAX)
    found = try_remedies(call, 30.0, exclusive=lambda _: nullcontext())
    rows = {one.remedy: one for one in found}
    assert rows[InnerJit.name].is_fair
    whole = rows["@jax.jit"]
    assert "the change of self.weights" in whole.dropped or whole.why
    assert found.best.remedy != "@jax.jit"
    assert not isinstance(trainer.weights, jax.core.Tracer)
