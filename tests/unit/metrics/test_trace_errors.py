"""Traces that the profiler itself says are not complete."""

import pytest
from helpers.builders import value
from helpers.xspace import at, line, plane, space

from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.metrics.batch_padding import batch_padding
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.validity import faults, remarks, valid
from pytest_tfperf.recording import Batches, BatchRows, Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Source, Value

STEPS = line(
    "python",
    at("train", 0, 10, step_num=0, _r=1),
    at("EagerExecute", 1, 1, is_func=1),
    at("IteratorGetNextOp::DoCompute", 2, 2),
    at("FunctionRun", 3, 3),
    at("train", 10, 20, step_num=1, _r=1),
)


CUPTI_FULL = (
    "Detected GPU events dropped on host: Profiler has collected 9 driver events and 4 device"
    " events. 7 events dropped because total device(activity) events reaches max."
)
"""As ReportNumEventsIfDropped of openxla/xla, cupti_collector.cc, writes it."""


def profiled(*planes, **texts):
    trace = decode_trace(space(*planes, **texts))
    return profile_of(Evidence(Recording(name="", trace=None, workload={}, bare=True), trace))


def test_a_complete_trace_has_no_fault():
    trace = decode_trace(space(plane("/host:CPU", STEPS)))
    assert (faults(trace), remarks(trace)) == ((), ())


def test_what_was_read_from_an_incomplete_trace_is_unknown_and_says_why():
    cases = [
        (
            [plane("/host:CPU", STEPS)],
            {"errors": ["CUPTI\n needs privileges", "CUPTI\n needs privileges"]},
            "reports an error: CUPTI needs privileges",
        ),
        ([plane("/host:CPU", STEPS, stats={"dropped_traces": 1200})], {}, "dropped 1,200 events"),
        (
            [
                plane(
                    "/host:CPU",
                    STEPS,
                    line("gpu", at("x", 0, 1, dropped_traces=5), at("x", 2, 3, dropped_traces=7)),
                )
            ],
            {},
            "dropped 12 events",
        ),
        (
            [plane("/host:CPU", STEPS)],
            {"warnings": [CUPTI_FULL, "clock went back"]},
            "7 events dropped because total device(activity) events reaches max",
        ),
    ]
    for planes, texts, fault in cases:
        profile = profiled(*planes, **texts)
        for metric in ("input_bound", "host_overhead", "eager_ops", "xla_launches"):
            assert profile.value(metric).number is None, fault
            assert fault in profile.value(metric).why, fault
        assert sum(fault in note for note in profile.notes) == 1, fault
        assert len(profile.steps) == 2, fault


def test_dropping_nothing_is_no_fault():
    assert profiled(plane("/host:CPU", STEPS, stats={"dropped_traces": 0})).input_bound == 0


def test_a_warning_is_shown_and_changes_nothing():
    profile = profiled(plane("/host:CPU", STEPS), warnings=["clock went back"])
    assert (profile.input_bound, profile.notes) == (0, ("the profiler warns: clock went back",))


def test_what_was_not_read_from_the_trace_stays():
    values = {
        "step_time": Value.of("step_time", 0.1, Source.TIMED),
        "flops": Value.of("flops", 5, Source.HLO),
        "input_bound": value("input_bound", 0.1),
    }
    trace = decode_trace(space(plane("/host:CPU", STEPS), errors=["it broke"]))
    found = valid(values, Evidence(Recording(name="", trace=None, workload={}), trace))
    assert [found[name].number for name in values] == [0.1, 5, None]
    assert found["input_bound"].unit == "0..1"


def test_padding_of_batches_is_known_without_a_complete_trace():
    component = BatchRows(
        name="x", dtype="int32", rows=((1, 2),), widths=(4,), features=1, how="a mask"
    )
    batches = Batches(n_batches=1, components=(component,))
    recording = Recording(name="", trace=None, workload={}, batches=batches)
    padding, _ = batch_padding(recording)
    trace = decode_trace(space(plane("/host:CPU", STEPS), errors=["it broke"]))
    found = valid({"batch_padding": padding}, Evidence(recording, trace))
    assert found["batch_padding"].number == 5 / 8


@pytest.mark.parametrize(
    ("framework", "is_bare", "known"),
    [(TENSORFLOW, False, {"flops"}), (TENSORFLOW, True, set()), (JAX, False, set())],
)
def test_what_programs_need_is_unknown_where_the_trace_tells_which_ran(framework, is_bare, known):
    names = ("flops", "fusions", "peak_memory")
    values = {name: Value.of(name, 5, Source.HLO) for name in names}
    trace = decode_trace(space(plane("/host:CPU", STEPS), errors=["it broke"]))
    recording = Recording(name="", trace=None, workload={}, bare=is_bare, framework=framework)
    found = valid(values, Evidence(recording, trace))
    assert {name for name in names if found[name].number is not None} == known
