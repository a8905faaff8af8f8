"""Remedies of retraces and compilations: each follows from the change that is named."""

import pytest_tfperf.function_traces as kinds
from pytest_tfperf.facts.host_activity import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.function_traces import Change, FunctionTrace
from pytest_tfperf.metrics.counts import compile_cause, retrace_cause

N = Change(kinds.VALUE, "n 1 → 2", "n")
ROWS = Change(kinds.SHAPE, "x f32[8] → f32[5]", "axis 0 of x")


def traces(*changes):
    return [FunctionTrace("step", n, (change,), "t.py:3") for n, change in enumerate(changes)]


def test_a_kind_of_change_has_its_own_remedy_alone():
    words = {
        kinds.WEAK_TYPE: "weakly typed",
        kinds.OBJECT: "__eq__",
        kinds.VALUE: "as a tensor",
        kinds.STATIC: "as an array",
        kinds.NEW_FUNCTION: "once, outside",
        kinds.KERAS_COMPILE: "model.compile once",
        kinds.DTYPE: "cast",
        kinds.SHARDING: "one sharding",
        kinds.STRUCTURE: "structure",
        kinds.LENGTH: "jnp.stack",
        kinds.SHAPE: "keep axis 0",
    }
    for kind, word in words.items():
        remedy = retrace_cause(traces(Change(kind, "", "axis 0 of x")), JAX)["try"]
        assert [one for one in words.values() if one in remedy] == [word], kind


def test_of_two_kinds_the_more_frequent_comes_first():
    remedy = retrace_cause(traces(N, ROWS, N), TENSORFLOW)["try"]
    assert remedy.index("as a tensor") < remedy.index("axis 0 of x")


def test_an_unknown_change_has_no_remedy():
    cause = retrace_cause([FunctionTrace("step", 1)], TENSORFLOW)
    assert cause == {"where": "traced again: step (what changed is not known), in step 1"}
    same = [Change(kinds.UNKNOWN, "jit_step: with arguments of the same shapes")] * 34
    assert compile_cause([], same, JAX) == {
        "where": "compiled: jit_step: with arguments of the same shapes ×34"
    }


def test_xla_is_not_told_to_leave_a_size_open():
    assert "reduce_retracing" in retrace_cause(traces(ROWS), TENSORFLOW)["try"]
    assert "reduce_retracing" not in compile_cause(traces(ROWS), [], TENSORFLOW)["try"]


def test_a_size_that_an_op_makes_is_not_that_of_the_batch():
    change = Change(kinds.SHAPE, "f: argument 0 f32[8] → f32[5]", "axis 0 of argument 0")
    cause = compile_cause([], [change], TENSORFLOW, ("Where", "t.py:9"))
    assert "Where at t.py:9" in cause["where"]
    assert "mask" in cause["try"]
    assert "drop_remainder" not in cause["try"]


def test_a_list_of_another_length_becomes_one_tensor():
    change = Change(kinds.LENGTH, "rewards: a list of 3 → 4 tensors", "rewards")
    assert "pass rewards as one tensor" in retrace_cause(traces(change), TENSORFLOW)["try"]
    assert "recompiles" in retrace_cause(traces(change), PYTORCH)["try"]
