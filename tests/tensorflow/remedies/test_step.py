"""Remedies of steps of TensorFlow that are traced again and again, or that a GPU would compute in float16."""

from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies import step as of_step
from pytest_tfperf.remedies.functions import where
from pytest_tfperf.remedies.remedy import Call, DoesNotApply
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Source, Value

RETRACES = Profile(name="", metrics={"retraces": Value.of("retraces", 9, Source.COUNTED)})
NOTHING_KNOWN = Profile(name="", metrics={})

BESIDE = lambda _: nullcontext()  # noqa: E731 - no verdict here is of a time


def call_of(step, data=None, profile=RETRACES):
    return Call(step=step, data=data, profile=profile, framework=TENSORFLOW)


def batches():
    for n in (3, 5, 4, 7, 3, 6, 2, 5):
        yield np.arange(4.0 * n, dtype="float32").reshape(n, 4)


class Batches:
    def __iter__(self):
        return batches()


def test_xla_is_written_at_the_functions_that_it_compiles():
    inner, unused = (tf.function(lambda x: x + 1) for _ in range(2))

    def logs(x):
        return float(inner(x)) if x is not None else unused(x)

    def bare(x):
        return x + 1

    for step, functions in ((logs, [inner]), (bare, [bare]), (inner, [inner])):
        call = call_of(step, [tf.constant(1.0)] * 8)
        written = of_step.JitCompile().write(call)
        assert written == "; ".join(
            f"{where(one)}@tf.function(jit_compile=True)" for one in functions
        )
        with (changed := of_step.JitCompile().apply(call)).during():
            assert float(changed.step(tf.constant(1.0))) == 2.0


@pytest.fixture
def traced():
    return []


@pytest.fixture
def retraces_for_sizes(traced):
    weights = tf.Variable(tf.ones((4, 2)))

    @tf.function(autograph=False)
    def update(x):
        traced.append(x.shape)
        weights.assign_add(1e-3 * tf.ones((4, 2)))
        return tf.tanh(x @ weights)

    def step(x):
        return update(tf.constant(x))

    return step


@pytest.mark.parametrize(
    ("remedy", "most", "written"),
    [
        (of_step.Relaxed(), 2, "@tf.function(reduce_retracing=True)"),
        (
            of_step.Signature(),
            1,
            "@tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])",
        ),
    ],
)
def test_sizes_that_retrace_get_traces_of_any_size(
    remedy, most, written, retraces_for_sizes, traced
):
    call = call_of(retraces_for_sizes, Batches())
    assert not remedy.applies(call_of(retraces_for_sizes, profile=NOTHING_KNOWN))
    assert remedy.applies(call)
    changed = remedy.apply(call)
    assert remedy.write(call).endswith(written)
    traced.clear()
    with changed.during():
        for batch in batches():
            changed.step(batch)
    assert len(traced) <= most
    traced.clear()
    retraces_for_sizes(np.ones((99, 4), "float32"))
    assert traced == [(99, 4)]  # the user's own function is back in its place
    [found] = try_remedies(call, 1.0, exclusive=BESIDE, remedies=[remedy])
    assert found.outputs in ("same", "within tolerance")


def test_numbers_that_retrace_become_tensors_and_others_stay(traced):
    @tf.function
    def scaled(x, times, *rest, by):
        traced.append(by)
        return x * by + tf.cast(rest[0], tf.float32) * sum([0.0] * times)  # `times` stays

    calls = {"n": 0}

    def step():
        calls["n"] += 1
        return scaled(tf.ones(3), 2, calls["n"], by=calls["n"] / 8)

    call, remedy = call_of(step), of_step.Tensors()
    changed = remedy.apply(call)
    assert calls == {"n": 0}  # the first look has put it back
    assert remedy.write(call).endswith("pass rest[0]=tf.constant(rest[0]), by=tf.constant(by)")
    traced.clear()
    with changed.during():
        outputs = [float(changed.step()[0]) for _ in range(4)]
    assert (outputs, len(traced)) == ([0.125, 0.25, 0.375, 0.5], 1)


def test_a_signature_holds_for_numbers(traced):
    @tf.function
    def scaled(x, by):
        traced.append(by)
        return x * by

    calls = {"n": 0}

    def step():
        calls["n"] += 1
        return scaled(tf.ones(3), by=calls["n"] / 8)

    call, remedy = call_of(step), of_step.Signature()
    changed = remedy.apply(call)
    assert "tf.TensorSpec([], tf.float32)" in remedy.write(call)
    traced.clear()
    with changed.during():
        outputs = [float(changed.step()[0]) for _ in range(4)]
    assert (outputs, len(traced)) == ([0.125, 0.25, 0.375, 0.5], 1)


def test_options_of_a_function_are_kept_where_another_changes():
    function = tf.function(lambda x: x, jit_compile=True, autograph=False)
    found = of_step.rewrapped(function, reduce_retracing=True)
    assert (found._jit_compile, found._autograph, found._reduce_retracing) == (True, False, True)


def test_what_no_signature_holds_for_does_not_apply():
    @tf.function
    def chosen(x, is_first):
        return x if is_first else -x

    calls = [0]

    def step():
        calls[0] += 1
        return chosen(tf.ones(3), calls[0] % 2 == 0)

    for remedy in (of_step.Signature(), of_step.Tensors()):
        with pytest.raises(DoesNotApply):
            remedy.apply(call_of(step))
    assert calls == [0]


def test_the_option_of_mixed_precision_holds_during_turns_alone():
    step = tf.function(lambda: tf.ones(3))
    call = call_of(step)
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    assert of_step.MixedPrecision().applies(call) is has_gpu
    changed = of_step.MixedPrecision().apply(call)
    options = tf.config.optimizer.get_experimental_options
    with changed.during():
        assert options()["auto_mixed_precision"] is True
        changed.step()
    assert not options().get("auto_mixed_precision")


def test_a_compiled_step_is_one_function_also_of_a_library():
    for step in (tf.function(lambda x: x), tf.function(tf.reduce_sum)):
        assert not of_step.OneFunction().applies(call_of(step))


def test_a_step_that_is_the_function_gets_the_signature_of_its_data():
    step = tf.function(lambda x: tf.reduce_sum(x))
    data = tf.data.Dataset.range(1, 9).map(lambda n: tf.ones([n % 5 + 1, 4]))
    call = call_of(step, data)
    changed = of_step.Signature().apply(call)
    assert "tf.TensorSpec([None, 4], tf.float32)" in of_step.Signature().write(call)
    assert [float(changed.step(x)) for x in data] == [float(step(x)) for x in data]
