"""Steps without an op of TensorFlow: no count of them is known, and another framework is an error."""

import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.validity import refuse_other_frameworks
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

STEPS = [at("step", n * 10, n * 10 + 9, step_num=n, _r=1, tfperf=1) for n in range(3)]
NO_OP = "the step ran no TensorFlow op"
NO_OWN_OP = "the step ran no TensorFlow op but those of its input"
LOADED = "; PyTorch is loaded, and tfperf measures TensorFlow and JAX only"
TIMES = {"step_time", "step_time_p90", "step_time_p99", "first_step_time", "epoch_gap"}
OF_INPUT = {"input_bound", "input_wait"}
COUNTS = {"retraces", "eager_ops", "xla_clusters", "xla_launches", "xla_compiles", "host_overhead"}

AFTER = at("EagerExecute", 40, 41, eager_op="SyncDevice")  # tf_profile waits for the devices
EAGER = at("EagerExecute", 1, 2, eager_op="AddV2")
SYNCHRONISE = [at("EagerExecute", 8, 9, eager_op="SyncDevice"), at("EagerKernelExecute", 8.2, 8.8)]
FETCH = [
    at("tfperf::next", 1, 4),
    at("EagerExecute", 2, 3, eager_op="IteratorGetNext"),
    at("IteratorGetNextOp::DoCompute", 2.1, 2.9),
    at("Iterator::Root", 2.2, 2.8),
]


class Code:
    """Nothing is read of it."""


def evidence(*events, frameworks=(), others=(), inspection=True):
    recording = Recording(
        name="step",
        trace=None,
        workload={},
        blocks=((1.0, 10),) * 12,
        step_seconds=(0.1,) * 120,
        n_steps=30,
        compiled=(),
        traced=(),
        frameworks=frameworks,
    )
    host = plane("/host:CPU", line("python", *STEPS, AFTER, *events), *others)
    return Evidence(recording, decode_trace(space(host)), None, Code() if inspection else None)


def known(found):
    """The metrics of cheap analyses that are known, and the reasons of the others."""
    from pytest_tfperf.metrics.profile import OnDemand, so_far

    profile = so_far(profile_of(found, OnDemand((), lambda: found)))
    values = {name: profile.metrics[name] for name in METRICS}
    return {name for name, value in values.items() if value.number is not None}, values


def test_of_a_step_without_ops_times_and_input_alone_are_known():
    for events in [[], SYNCHRONISE, [at("numpy", 1, 3)]]:
        names, values = known(evidence(*events))
        assert {"step_time", *OF_INPUT} <= names <= TIMES | OF_INPUT, events
        assert {values[name].why for name in COUNTS} == {NO_OP}, events


def test_any_op_of_any_thread_makes_counts_known():
    events = [
        EAGER,
        at("EagerExecute", 1, 2, eager_op="_EagerConst"),
        at("FunctionRun", 1, 2),
        at("SessionRun", 1, 2),
        at("ExecutorState::Process", 1, 2, id=7),
        at("tf.function-graph_building", 1, 2),
        at("dense/MatMul:MatMul", 1, 2),
    ]
    for event in events:
        for frameworks in [(), ("JAX",)]:
            for elsewhere in [False, True]:
                own, others = ([], [line("thread", event, id=2)]) if elsewhere else ([event], [])
                found = evidence(*own, frameworks=frameworks, others=others)
                refuse_other_frameworks(found)
                names, _ = known(found)
                assert {"retraces", "host_overhead"} <= names, (event, frameworks, elsewhere)


def test_ops_after_the_steps_are_no_ops_of_steps():
    names, values = known(evidence(at("EagerExecute", 35, 36, eager_op="AddV2")))
    assert not COUNTS & names
    assert values["retraces"].why == NO_OP


def test_a_step_that_only_fetches_is_known_unless_another_framework_may_compute():
    assert "retraces" in known(evidence(*FETCH))[0]
    found = evidence(*FETCH, frameworks=("PyTorch",))
    refuse_other_frameworks(found)
    names, values = known(found)
    assert names >= {"step_time", *OF_INPUT}
    assert not COUNTS & names
    assert values["retraces"].why == NO_OWN_OP + LOADED


def test_threads_of_tf_data_run_no_op_of_the_step():
    worker = line("tf_data_iterator_get_next", at("map/Add:AddV2", 2, 3), id=2)
    _, values = known(evidence(frameworks=("PyTorch",), others=[worker]))
    assert values["retraces"].why == NO_OWN_OP + LOADED


def test_a_step_of_another_framework_is_an_error_that_names_it():
    with pytest.raises(CaptureError) as raised:
        refuse_other_frameworks(evidence(*SYNCHRONISE, frameworks=("PyTorch",)))
    assert str(raised.value) == NO_OP + LOADED
    with pytest.raises(CaptureError, match="; PyTorch and MXNet are loaded"):
        refuse_other_frameworks(evidence(frameworks=("PyTorch", "MXNet")))
    refuse_other_frameworks(evidence())


def test_a_trace_that_no_test_made_says_for_itself_what_it_shows():
    _, values = known(evidence(inspection=False, frameworks=("PyTorch",)))
    assert NO_OP not in str(values["retraces"].why)
