"""Counts of bare traces that cannot tell."""

import pytest
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording, XlaShown
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


HOST = plane("/host:CPU", line("python", *STEPS, at("FunctionRun", 1, 2)))
HLO = plane("/host:metadata", metadata={"f(0)": {"Hlo Proto": field(1, b"")}})
OF_XLA = ("xla_clusters", "xla_launches", "fusions")


def of_process(shown, *planes, **more):
    recording = Recording(name="", trace=None, workload={}, xla_shown=shown, **more)
    return profile_of(Evidence(recording, decode_trace(space(*planes))))


def test_none_ran_where_the_self_check_showed_executions():
    for metric in OF_XLA:
        assert of_process(XlaShown(), HOST, HLO).value(metric).number == 0, metric


def test_what_the_self_check_did_not_show_is_unknown():
    for metric in OF_XLA:
        value = of_process(XlaShown(executions="not in 9.9"), HOST, HLO).value(metric)
        assert (value.number, value.why) == (None, "not in 9.9"), metric


@pytest.mark.parametrize(
    ("more", "lacking"), [({"bare": True}, "compilations"), ({"n_steps": 3}, "modules")]
)
def test_no_compilation_is_known_where_the_self_check_showed_its_evidence(more, lacking):
    more = {"compiled": (), **more}
    assert of_process(XlaShown(), HOST, **more).value("xla_compiles").number == 0
    value = of_process(XlaShown(**{lacking: "not in 9.9"}), HOST, **more).value("xla_compiles")
    assert (value.number, value.why) == (None, "not in 9.9")


def test_compilations_that_show_are_counted_whatever_the_self_check_showed():
    shown = XlaShown(modules="not in 9.9")
    value = of_process(shown, HOST, compiled=("f(1)",), n_steps=3).value("xla_compiles")
    assert value.number == 1
