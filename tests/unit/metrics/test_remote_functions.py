"""Functions that other processes ran: what the trace of this one then does not tell."""

import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.facts.host_activity import remote_functions
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

STEPS = [at("step", n * 10, n * 10 + 9, step_num=n, _r=1, tfperf=1) for n in range(3)]
LOCAL = "EagerLocalExecute: __inference_step_7"


def called(begin, name="__inference_step_7"):
    return at("EagerExecute", begin, begin + 4, eager_op=name, is_func=1)


def trace_of(*events, others=()):
    return decode_trace(space(plane("/host:CPU", line("python", *STEPS, *events), *others)))


def found(*events, others=()):
    trace = trace_of(*events, others=others)
    recording = Recording(name="", trace=None, workload={})
    return dict(remote_functions(trace, Evidence(recording, trace).launched))


def test_a_request_without_a_local_execution_went_elsewhere():
    assert found(called(1), called(11), called(21, "__inference_other_8")) == {
        "__inference_step_7": 2,
        "__inference_other_8": 1,
    }


def test_a_local_execution_is_in_its_request():
    for name in [LOCAL, "EagerLocalExecuteAsync: f", "EagerKernelExecute"]:
        assert found(called(1), at(name, 2, 3)) == {}, name


def test_requests_outside_the_steps_and_ops_do_not_count():
    assert found(called(29.5), at("EagerExecute", 1, 2, eager_op="AddV2", is_func=0)) == {}


def server(*begins):
    """The thread of a server in this process, which runs the function that it is asked for."""
    served = [
        [at("EagerService:Enqueue", t, t + 3), called_within(t), at(LOCAL, t + 1, t + 2)]
        for t in begins
    ]
    return line("server", *(event for events in served for event in events), id=1)


def called_within(begin):
    return at("EagerExecute", begin + 0.5, begin + 2.5, eager_op="__inference_step_7", is_func=1)


def test_a_server_of_this_process_shows_what_it_runs():
    assert found(called(1), called(11), others=[server(2, 12)]) == {}
    assert found(called(1), called(11), others=[server(2)]) == {"__inference_step_7": 1}


def test_a_function_that_also_runs_here_hides_no_request():
    here = [called(1), at(LOCAL, 2, 3)]
    assert found(*here, called(6)) == {"__inference_step_7": 1}


RECORDING = {
    "name": "step",
    "trace": None,
    "workload": {},
    "blocks": ((1.0, 10),) * 12,
    "step_seconds": (0.1,) * 120,
    "n_steps": 30,
    "compiled": (),
    "traced": (),
}
HIDDEN = ("input_bound", "input_wait", "host_overhead", "peak_memory", "step_skew")
XLA = ("xla_clusters", "xla_launches", "xla_compiles", "xla_coverage", "fusions")
WHY = (
    "other processes ran functions of the step (step), and the trace shows the work of this one "
    "only"
)


def profiled(*events, **recorded):
    return profile_of(Evidence(Recording(**RECORDING, **recorded), trace_of(*events)))


def test_what_the_trace_lacks_is_unknown_and_the_rest_is_known():
    profile = profiled(called(1), at("EagerExecute", 6, 7, eager_op="Identity", is_func=0))
    assert {profile.value(name).why for name in (*HIDDEN, *XLA)} == {WHY}
    assert profile.step_time == pytest.approx(0.1)
    assert profile.retraces == 0
    value = profile.value("eager_ops")
    assert value.number == 0
    assert value.high() == 1
    assert "time_share" not in value.detail
    (note,) = (note for note in profile.notes if note.startswith(WHY))
    assert "tfperf capture HOST:PORT" in note


def test_the_wait_for_data_that_the_step_is_given_is_known():
    waits = [at("tfperf::next", 0.1, 0.9), at("IteratorGetNextOp::DoCompute", 0.2, 0.8)]
    profile = profiled(called(1), *waits, pipeline=())
    assert profile.input_bound == pytest.approx(0.6 / 30, rel=0.2)
    assert profile.value("host_overhead").why == WHY


def test_functions_of_this_process_leave_all_as_it_is():
    profile = profiled(called(1), at(LOCAL, 2, 3), at("ExecutorState::Process", 2.2, 2.8))
    assert profile.xla_launches == 0
    assert not any("other processes ran" in note for note in profile.notes)
