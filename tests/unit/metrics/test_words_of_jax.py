"""Reasons and remedies of steps of JAX: they name JAX's own means, and none of TensorFlow's."""

import re

import pytest
from helpers.builders import profile
from helpers.xspace import at, line, plane, space

from pytest_tfperf.advice import guides
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.hlo.cost import Costs, Work
from pytest_tfperf.metrics import pipeline, shares
from pytest_tfperf.metrics.calls import analyse_python_calls
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.flops import work_values
from pytest_tfperf.metrics.memory import analyse as analyse_growth
from pytest_tfperf.metrics.op_work import with_ops
from pytest_tfperf.metrics.pipeline import no_stage_cause, with_keras_source
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.step_advice import advise
from pytest_tfperf.recording import (
    ALL,
    Asked,
    MemorySamples,
    PipelineStage,
    PythonCalls,
    PythonFunction,
    Recording,
)
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import PARTS, Step

OF_TENSORFLOW = re.compile(r"tf\.|tensors?\b|TensorFlow|reduce_retracing|a Keras loop")
STEPS = [at("step", n * 10, n * 10 + 9, step_num=n, _r=1, tfperf=1) for n in range(3)]
N = 51
GENERATOR = (PipelineStage(stage="generator", python="generator", line="data.py:3"),)


def evidence(framework, *events, asked=ALL, **fields):
    recording = Recording(name="step", trace=None, workload={}, framework=framework, **fields)
    host = plane("/host:CPU", line("python", *STEPS, *events))
    return Evidence(recording, decode_trace(space(host)), asked=asked)


def growth(framework):
    rises = tuple(4096 * step for step in range(N))
    memory = MemorySamples(n_steps=tuple(range(N)), heap=rises, python=(0,) * N, mapped=(0,) * N)
    return analyse_growth(evidence(framework, memory=memory)).values["memory_growth"]


def calls(framework):
    function = PythonFunction(name="layer", line=7, calls=7, self_s=1e-4)
    counted = PythonCalls(steps=((7, 1),) * 3, functions=(function,))
    return analyse_python_calls(evidence(framework, python_calls=counted)).values["python_calls"]


def python_stages(framework):
    found = pipeline.analyse(evidence(framework, pipeline=GENERATOR))
    return found.values["input_python_stages"]


def half_precision(framework):
    costs = Costs(work=Work(235, 235, 0), ops=(), uncounted=(), once=())
    value = work_values([(costs, 1.0)])["half_precision"]
    return with_ops("half_precision", value, [], framework)


def test_remedies_name_the_means_of_the_framework():
    cases = [
        (growth, "a tf.function or dataset made in each step", "a jax.jit function made in each"),
        (calls, "into a tf.function", "into one jax.jit function"),
        (python_stages, "with TensorFlow ops", "Grain's DataLoader"),
        (half_precision, "keras.mixed_precision", "jnp.bfloat16"),
    ]
    for found, in_tensorflow, in_jax in cases:
        assert in_tensorflow in found(TENSORFLOW).detail["try"], in_tensorflow
        assert in_jax in found(JAX).detail["try"], in_tensorflow
        assert not OF_TENSORFLOW.search(found(JAX).detail["try"]), in_tensorflow


def test_another_framework_gets_the_remedies_that_hold_anywhere():
    for found in (growth, calls, python_stages):
        remedy = found("PyTorch").detail["try"]
        assert not OF_TENSORFLOW.search(remedy)
        assert "jax" not in remedy


def test_arrays_that_keras_takes_have_one_source():
    cases = [
        ("stage Map is the slowest", "Keras makes the pipeline of arrays; stage Map", "tf.data"),
        (no_stage_cause(JAX)["where"], "Keras makes the batches of arrays", "batch_size="),
        (no_stage_cause()["where"], "Keras makes the batches of arrays", "batch_size="),
    ]
    for where, stages, remedy in cases:
        arrays = (PipelineStage(stage="arrays", by_keras=True),)
        detail = with_keras_source({"where": where, "try": "prefetch"}, arrays)
        assert detail["where"].startswith(stages), (where, stages, remedy)
        assert "no tf.data stage ran" not in detail["where"], (where, stages, remedy)
        assert remedy in detail["try"], (where, stages, remedy)


CALL = at("PjitFunction(f)", 1, 2)


def test_reasons_name_what_a_trace_of_jax_lacks():
    cases = [
        ("host_overhead", "what JAX runs on a CPU does not tell idle time from work"),
        ("input_bound", "the steps were given no data, and JAX's trace shows no input pipeline"),
        ("input_wait", "pass the data, and the time of next() counts"),
    ]
    for metric, why in cases:
        values = shares.analyse(evidence(JAX, CALL, n_steps=30, bare=False)).values
        assert why in values[metric].why, metric
        assert not OF_TENSORFLOW.search(values[metric].why), metric


def test_a_saved_trace_of_jax_is_not_told_to_pass_data():
    value = shares.analyse(evidence(TENSORFLOW, CALL, bare=True)).values["input_bound"]
    assert "tf_profile" not in value.why


@pytest.mark.parametrize("metric", ["padding_overhead", "op_guide_findings"])
def test_metrics_about_tpus_need_a_program_of_jax(metric):
    why = profile_of(evidence(JAX, CALL, asked=Asked(tpu="v5e"))).value(metric).why
    assert "no event of an XLA execution" in why
    assert not OF_TENSORFLOW.search(why)


def test_pages_about_16_bits_devices_and_profiles_are_those_of_jax():
    parts = dict.fromkeys(PARTS, 0.0) | {"device_to_device": 0.05, "kernel_launch": 0.05}
    step = Step(name="train 0", period_s=0.1, parts_s=parts)
    slow = profile(steps=(step,), half_precision=0.0, step_skew=1.0)
    assert {one.read for one in advise(slow)} == {
        guides.MIXED_PRECISION,
        guides.GPUS,
        guides.PROFILER,
    }
    in_jax = advise(slow, JAX)
    assert {one.read for one in in_jax} == {guides.JAX_GPUS, guides.JAX_PROFILER}
    assert any("jax.device_put" in one.what for one in in_jax)
    assert not any(OF_TENSORFLOW.search(one.what) for one in in_jax)
