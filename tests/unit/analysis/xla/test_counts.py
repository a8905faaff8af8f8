"""Counts of bare traces that cannot tell."""

from helpers.xspace import at, line, plane, space

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Source

STEPS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]


def profiled(*planes):
    return profile_of(
        Evidence(
            Recording(name="", trace=None, workload={}, bare=True), decode_trace(space(*planes))
        )
    )


def test_without_events_of_the_host_nothing_is_known_of_it():
    core = plane(
        "/device:TPU:0",
        line("Steps", at("0", 0, 9), at("1", 10, 19)),
        line("XLA Ops", at("%f.1 = f32[] add(x)", 1, 8)),
    )
    profile = profiled(plane("/host:CPU"), core)
    for metric in ("eager_ops", "retraces", "xla_compiles", "input_bound", "host_overhead"):
        assert profile.value(metric).number is None, metric
        assert profile.value(metric).why.startswith("the trace "), metric


def test_retraces_show_only_where_tensorflow_s_runtime_does():
    jax = profiled(plane("/host:CPU", line("python", *STEPS, at("PjitFunction(f)", 1, 2))))
    assert "TensorFlow's runtime" in jax.value("retraces").why
    tensorflow = profiled(plane("/host:CPU", line("python", *STEPS, at("FunctionRun", 1, 2))))
    assert (tensorflow.retraces, tensorflow.value("retraces").source) == (0, Source.TRACE)


def test_one_step_says_nothing_of_those_after_it():
    profile = profiled(plane("/host:CPU", line("python", STEPS[0], at("FunctionRun", 1, 2))))
    assert profile.value("retraces").why == "there is no step after the first"
