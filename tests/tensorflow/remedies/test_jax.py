"""Remedies of steps of JAX: what they change of its compiled functions, what stays as it was, and what outputs say."""

import dataclasses
import functools
from contextlib import nullcontext

import numpy as np
import pytest

from pytest_tfperf.frameworks.framework import JAX
from pytest_tfperf.remedies import jax as of_jax
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Source, Value

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.imports("jax")

COMPILES = Profile(name="", metrics={"xla_compiles": Value.of("xla_compiles", 9, Source.COUNTED)})

BESIDE = lambda _: nullcontext()  # noqa: E731 - no verdict here is of a time


def tried(step, data=None, remedies=of_jax.REMEDIES, profile=COMPILES, seconds=1.0):
    call = Call(step=step, data=data, profile=profile, framework=JAX)
    return {
        one.remedy: one for one in try_remedies(call, seconds, exclusive=BESIDE, remedies=remedies)
    }


class Batches:
    """Batches whose sizes change."""

    def __iter__(self):
        for n in (3, 5, 4, 7, 3, 6, 2, 5):
            yield np.arange(4.0 * n, dtype="float32").reshape(n, 4), np.ones(n, "float32")


def test_static_arguments_that_change_are_passed_as_arrays():
    traced = []
    calls = {"n": 0}

    @functools.partial(jax.jit, static_argnames=("by", "axis"))
    def scaled(x, by, axis):
        traced.append(by)
        return jnp.sum(x * by, axis)

    def step():
        calls["n"] += 1
        return scaled(jnp.ones(3), by=calls["n"], axis=0)

    call = Call(step=step, profile=COMPILES, framework=JAX)
    changed = of_jax.Traced().apply(call)
    assert calls == {"n": 0}  # the first look has put it back
    assert 'take "by" out of static_argnames' in of_jax.Traced().write(call)
    traced.clear()
    with changed.during():
        outputs = [float(changed.step()) for _ in range(4)]
    assert (outputs, len(traced)) == ([3.0, 6.0, 9.0, 12.0], 1)
    calls["n"] = 100
    step()
    assert len(traced) == 2  # the user's own function is back in its place, and compiles anew


def test_a_static_argument_that_python_branches_on_could_not_be_tried():
    calls = [0]

    @functools.partial(jax.jit, static_argnums=1)
    def powers(x, n):
        return x if n < 2 else x * powers(x, n - 1)

    def step():
        calls[0] += 1
        return powers(jnp.ones(3), calls[0])

    found = tried(step, remedies=[of_jax.Traced()])
    assert found["arrays in place of static arguments"].why.startswith("could not be tried: Tracer")


@pytest.mark.full
def test_numbers_that_do_not_change_become_static():
    @jax.jit
    def total(x, n, by):
        return jax.lax.fori_loop(0, n, lambda _, y: y * by, x)

    def step(x):
        return total(x, 3, by=x[0])

    data = [np.full(3, n, "float32") for n in range(8)]
    call = Call(step=step, data=data, profile=COMPILES, framework=JAX)
    assert 'static_argnames=("n",)' in of_jax.Static().write(call)
    found = tried(step, data, [of_jax.Static()])
    assert found["static arguments for numbers that do not change"].outputs == "same"


@pytest.mark.parametrize(
    "remedy",
    [of_jax.PaddedToPowers(), pytest.param(of_jax.PaddedToLargest(), marks=pytest.mark.full)],
)
def test_sizes_that_change_are_padded_and_results_cut(remedy):
    traced = []

    @jax.jit
    def update(weights, batch):
        x, mask = batch
        traced.append(x.shape)
        predicted = jnp.tanh(x @ weights)
        loss = jnp.sum(predicted * mask[:, None])
        return weights + 1e-3 * jnp.sum(x), {"loss": loss, "predicted": predicted}

    state = {"weights": jnp.ones((4, 2))}

    def step(batch):
        state["weights"], found = update(state["weights"], batch)
        return found

    call = Call(step=step, data=Batches(), profile=COMPILES, framework=JAX, unpack=False)
    changed = remedy.apply(call)
    traced.clear()
    with changed.during():
        outputs = [changed.step(batch) for batch in Batches()]
    own = {len(x): 1 for x, _ in Batches()}
    assert len(set(traced)) < len(own) + 2
    assert {shape[0] for shape in traced} <= {2, 4, 8, 16, 7, 14}
    assert [len(one["predicted"]) for one in outputs] == [len(x) for x, _ in Batches()]
    state["weights"] = jnp.ones((4, 2))
    for one, batch in zip(outputs, Batches(), strict=True):
        expected = step(batch)
        np.testing.assert_allclose(one["predicted"], expected["predicted"], rtol=1e-5)
        np.testing.assert_allclose(one["loss"], expected["loss"], rtol=1e-5)
    assert "axis 0 of batch" in remedy.write(call)


@pytest.mark.full
def test_a_mean_over_a_padded_batch_is_told_as_different():
    step = jax.jit(lambda batch: jnp.mean(batch[0]))
    found = tried(step, Batches(), [of_jax.PaddedToPowers()])
    one = found["sizes padded to powers of two"]
    assert "differs by up to" in one.outputs
    assert not one.keeps_outputs


def test_what_does_not_apply_has_no_row():
    data, jitted = [np.ones(3, "float32")] * 4, jax.jit(lambda x: jnp.tanh(x))
    assert tried(jitted, data) == {}

    def step(x):
        return jitted(x) + 1

    for remedy in of_jax.REMEDIES:
        assert remedy.name == "@jax.jit" or tried(step, data, [remedy]) == {}, remedy


def test_results_of_the_call_before_are_donated_and_the_users_arrays_live():
    @jax.jit
    def update(state, x):
        return {"w": state["w"] + x, "n": state["n"] + 1}

    first = {"w": jnp.zeros(3), "n": jnp.zeros((), "int32")}
    held = {"state": first}

    def step(x):
        held["state"] = update(held["state"], x)
        return held["state"]

    data = [np.full(3, n, "float32") for n in range(8)]
    call = Call(step=step, data=data, profile=COMPILES, framework=JAX)
    assert 'donate_argnames=("state",)' in of_jax.Donated().write(call)
    found = tried(step, data, [of_jax.Donated()])
    assert found["donate_argnums"].outputs == "same"
    assert held["state"] is first
    assert not first["w"].is_deleted()
    assert first["w"].tolist() == [0, 0, 0]

    def keeps(x, kept=[]):  # noqa: B006 - it is what the test is of
        kept.append(held["state"])
        held["state"] = update(held["state"], x)
        return sum(float(one["n"]) for one in kept)

    why = tried(keeps, data, [of_jax.Donated()])["donate_argnums"].why
    assert why.startswith("could not be tried: ")


@pytest.mark.full
def test_functions_are_reached_in_objects_and_classes():
    class Trainer:
        def __init__(self):
            self.weights, self.by = jnp.ones(3), 0

        @functools.partial(jax.jit, static_argnums=(0, 2))
        def update(self, weights, by):
            return weights * by

        def step(self):
            self.by += 1
            self.weights = self.update(self.weights, self.by)
            return self.weights

    trainer = Trainer()
    before = vars(Trainer)["update"]
    for remedy in (of_jax.Traced(), of_jax.Donated()):
        assert tried(trainer.step, remedies=[remedy])[remedy.name].outputs == "same", remedy
    assert vars(Trainer)["update"] is before
    assert (trainer.by, trainer.weights.tolist()) == (0, [1, 1, 1])


def test_functions_of_frozen_objects_stay_and_others_are_replaced():
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        twice: object

    frozen, by = Frozen(jax.jit(lambda x: 2 * x)), jax.jit(lambda x, n: x * n)
    before = frozen.twice

    def step(x):
        return by(frozen.twice(x), n=3)

    name = of_jax.Static.name
    assert tried(step, [np.ones(3)] * 8, [of_jax.Static()])[name].outputs == "same"
    assert frozen.twice is before

    def alone(x):
        return frozen.twice(x)

    found = tried(alone, [np.ones(3)] * 8, [of_jax.PaddedToPowers()])
    assert found[of_jax.PaddedToPowers.name].why.endswith("by a name that can be replaced")


def test_matrices_in_bfloat16_are_never_the_same_result(monkeypatch):
    assert not of_jax.Precision().applies(Call(step=len, profile=COMPILES, framework=JAX))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(64, 64)), "float32")
    step = jax.jit(lambda: x @ x)
    call = Call(step=step, profile=COMPILES, framework=JAX)
    changed = of_jax.Precision().apply(call)
    with changed.during():
        assert jax.config.jax_default_matmul_precision == "BF16_BF16_F32"
    assert jax.config.jax_default_matmul_precision is None


@pytest.mark.full
def test_functions_that_cannot_be_reached_could_not_be_tried():
    jitted = {jax.jit(lambda x: x + 1)}  # a set, which is not looked through

    def step():
        return [one(jnp.ones(3)) for one in jitted]

    why = tried(step, remedies=[of_jax.PaddedToPowers()])["sizes padded to powers of two"].why
    assert why == (
        "could not be tried: the step calls no compiled function by a name that can be replaced"
    )
    assert tried(step, remedies=[of_jax.Donated()]) == {}
