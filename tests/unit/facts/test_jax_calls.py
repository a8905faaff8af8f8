"""Calls, traces and frameworks of steps of JAX; what a trace does not show is unknown, never 0."""

import numpy as np
from helpers.xspace import at, line, plane, space

from pytest_tfperf.facts.host_activity import frameworks_of, runs_jax
from pytest_tfperf.facts.late import jax_retraces
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.metrics.calls import jax_dispatches
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import HOST, decode_trace

RUN = "CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"
WAIT = at("PjitFunction(tfperf_synchronise)", 8, 8.5)
WAITED = at(RUN, 8.1, 8.2)
LOWERED = "lower_sharding_computation"
COMPILED = "CpuCompiler::RunBackend"


def steps_of(*events, n_steps=3):
    """A trace of steps of 9 ms, one each 10 ms, with these events on another thread."""
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(n_steps)]
    return decode_trace(space(plane(HOST, line("marks", *marks), line("python", *events))))


def call(name, begin, *inside):
    """A call of 3 ms with events of 1 ms in its second millisecond."""
    return [
        at(f"PjitFunction({name})", begin, begin + 3),
        *(at(one, begin + 1, begin + 2) for one in inside),
    ]


def retraces(*events, hidden=False):
    trace = steps_of(*events)
    return jax_retraces(trace, find_steps(trace), hidden)


def test_a_call_that_is_lowered_in_a_later_step_is_traced_again():
    first, later = call("f", 1, LOWERED, COMPILED), call("f", 21, LOWERED, COMPILED)
    assert retraces(*first, *call("f", 11), *later) == (FunctionTrace("f", 2),)


def test_calls_in_the_first_step_do_not_count():
    assert retraces(*call("f", 1, LOWERED), *call("f", 4, LOWERED)) == ()


def test_in_steps_that_are_calls_the_first_of_each_function_does_not_count():
    events = [*call("f", 1, LOWERED), *call("f", 11), *call("f", 21, LOWERED)]
    trace = decode_trace(space(plane(HOST, line("python", *events))))
    steps = find_steps(trace)
    assert steps.source == "function"
    assert [one.function for one in jax_retraces(trace, steps, False)] == ["f"]


def test_what_may_have_been_traced_unseen_is_unknown():
    cases = {
        "nothing": (call("f", 11), False, ()),
        "hidden": (call("f", 11), True, None),
        "no lowering": (call("f", 11, COMPILED), False, None),
        "nor calls": ([at(COMPILED, 11, 12)], False, None),
        "calls of another name": ([at("OtherCall(f)", 11, 14), at(LOWERED, 12, 13)], False, None),
        "neither": ([at("OtherCall(f)", 11, 14)], False, ()),
    }
    for name, (events, hidden, found) in cases.items():
        assert retraces(*events, hidden=hidden) == found, name


def dispatches(*events, own):
    recording = Recording(
        name="", trace=None, workload={}, framework="JAX", own_functions=own, n_steps=3
    )
    return jax_dispatches(Evidence(recording, steps_of(*events)))


def test_calls_of_functions_of_jax_are_counted_in_their_step():
    events = [*call("add", 1, RUN), *call("f", 4, RUN), WAIT, WAITED]
    events += [*call("add", 11, RUN), *call("add", 21, RUN)]
    value = dispatches(*events, own={"add": False})
    assert (value.number, "low" in value.detail) == (1, False)
    assert "add" in value.detail["where"]


def test_without_compilation_the_ops_inside_a_call_are_counted():
    inside = [at("PjitFunction(add)", 1.5, 3), at("PjitFunction(add)", 2, 2.5), at(RUN, 2.1, 2.2)]
    inside += [at("PjitFunction(sum)", 3, 3.5), at(RUN, 3.1, 3.2)]
    value = dispatches(at("PjitFunction(f)", 1, 4), *inside, own={"add": False, "sum": False})
    assert value.detail["high"] == 2
    assert value.detail["where"].startswith("outside jax.jit: add ×0.33, sum ×0.33")


def test_calls_inside_a_call_that_was_lowered_belong_to_its_trace():
    traced = [at("PjitFunction(add)", 1.1, 1.5), at(LOWERED, 2, 3), at(RUN, 3.1, 3.2)]
    own = {"add": False, "g": False}
    assert dispatches(at("PjitFunction(f)", 1, 4), *traced, own=own).number == 0
    assert dispatches(at("PjitFunction(g)", 1, 4), *traced, own=own).detail["high"] == 1


def test_calls_that_are_only_traced_are_no_ops_of_the_step():
    """As the body of `lax.scan`, whose program runs in a later call."""
    events = [at("PjitFunction(add)", 1, 2), *call("scan", 3, RUN)]
    value = dispatches(*events, own={"add": False, "scan": False})
    assert value.detail["high"] == 1
    assert value.detail["where"].startswith("outside jax.jit: scan")


def test_putting_an_array_on_a_device_is_no_op():
    for is_users_too in (False, True):
        own = {"stage": is_users_too, "add": False}
        assert dispatches(*call("stage", 1, RUN), own=own).number == 0, is_users_too


def test_steps_that_call_no_function_of_jax_have_zero():
    assert dispatches(*call("f", 1, RUN), WAIT, WAITED, own={"add": False}).number == 0
    assert dispatches(WAIT, WAITED, own={}).number == 0


def test_calls_that_cannot_be_told_apart_are_unknown():
    cases = [
        ([at("OtherCall(add)", 1, 2)], {"add": False}, "no event of JAX's calls"),
        ([*call("add", 1)], {"add": False}, "no event of JAX's calls and executions"),
        ([*call("add", 1, RUN)], {"add": True}, "both compile a function named add"),
        ([*call("add", 1, RUN)], None, "pytest does"),
    ]
    for events, own, why in cases:
        value = dispatches(*events, own=own)
        assert value.number is None, why
        assert why in value.why, why


MULTIPLIED = at("a/MatMul:MatMul", 12, 13)
FETCHED = at("EagerExecute", 12, 13, eager_op="IteratorGetNext", is_func=0)


def test_frameworks_that_computed_in_the_steps_are_found():
    cases = [
        ([MULTIPLIED], call("f", 11), (), ("TensorFlow", "JAX")),
        ([FETCHED], call("f", 11), (), ("JAX",)),
        ([MULTIPLIED], [WAIT], (), ("TensorFlow",)),
        ([], [WAIT], (), ("TensorFlow",)),
        ([], [WAIT], ("PyTorch",), ("PyTorch",)),
        ([], [at("dot.1", 11, 12, program_id=3, run_id=1)], (), ("JAX",)),
        ([], call("f", 40), (), ("TensorFlow",)),  # outside of the steps
    ]
    for tensorflow, jax, untraced, found in cases:
        traces = {"TensorFlow": steps_of(*tensorflow), "JAX": steps_of(*jax)}
        assert frameworks_of(traces, untraced) == found, (tensorflow, jax, untraced)


def test_a_framework_alone_needs_no_look_at_its_trace():
    assert frameworks_of({"JAX": steps_of()}) == ("JAX",)


def test_a_trace_without_steps_is_of_no_framework():
    empty = decode_trace(space(plane(HOST, line("python", at("x", 0, 1)))))
    assert frameworks_of({"JAX": empty, "TensorFlow": steps_of(MULTIPLIED)}) == ("TensorFlow",)


def test_steps_of_jax_have_calls_or_executions():
    counted = [
        runs_jax(trace, find_steps(trace))
        for trace in (steps_of(*call("f", 1)), steps_of(WAIT), steps_of(at("x", 1, 2)))
    ]
    assert np.array_equal(counted, [True, False, False])
