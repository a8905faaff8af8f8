"""Garbage, conditions and tracing around the timed blocks, with real TensorFlow."""

import gc
import sys

import pytest
import tensorflow as tf

from pytest_tfperf.machine import conditions

DATA = [tf.ones((4,))] * 30


@pytest.mark.parametrize("on", [True, False])
def test_collector_is_held_off_in_timed_and_counted_steps_only(profile, on):
    before, usual, held = gc.isenabled(), gc.get_threshold(), []

    def step(x):
        held.append(gc.get_threshold() != usual)
        return x + 1

    (gc.enable if on else gc.disable)()
    try:
        profile(step, DATA)
        assert gc.isenabled() is on
        assert gc.get_threshold() == usual
    finally:
        (gc.enable if before else gc.disable)()
    assert held[:16] == [False] * 4 + [on] * 12  # one cold step, 3 of warm-up, 12 timed
    assert held[16:] == [False] * 7 + [on] * 3  # 6 traced and the probe, 3 counted


def test_failing_step_restores_the_collector(profile):
    usual, calls = gc.get_threshold(), []

    def step(x):
        calls.append(gc.get_threshold() != usual)
        if len(calls) == 8:
            raise ZeroDivisionError
        return x

    with pytest.raises(ZeroDivisionError):
        profile(step, DATA)
    assert calls[-1]
    assert gc.get_threshold() == usual


def test_conditions_are_read_around_the_timed_steps_and_noted(profile, monkeypatch):
    calls, readings = [], []

    def step(x):
        calls.append(x)
        return x + 1

    monkeypatch.setattr(conditions, "read_conditions", lambda: readings.append(len(calls)))
    monkeypatch.setattr(conditions, "remarks", lambda before, after: ("the machine was busy",))
    monkeypatch.setattr(conditions, "share_lost", lambda before, after: 0.5)
    result = profile(step, DATA)
    assert readings[:2] == [4, 16]  # one cold step, 3 of warm-up, 12 timed
    assert result.notes.count("the machine was busy") == 1
    assert result.other_load == 0.5


def test_steps_that_get_slower_block_by_block_are_noted(profile, monkeypatch):
    now, calls = [0.0], []

    def step(x):
        calls.append(x)
        now[0] += 1 + 0.02 * len(calls)
        return x + 1

    monkeypatch.setattr("pytest_tfperf.machine.clocks.perf_counter", lambda: now[0])
    result = profile(step, DATA, latency=True)
    # the steps 5 to 16, of 1.10 to 1.32 s: 0.22 of 1.21
    assert [note for note in result.notes if "not steady" in note] == [
        "step_time is not steady: over 12 blocks it rose by 18.2 % (1.65 % a block): "
        "the machine slows down (heat, a CPU quota, other load), or what the step works on grows"
    ]
    assert result.value("step_time").detail["n_dropped"] == 0


def test_times_under_python_tracing_are_marked_as_instrumented(profile):
    calls = []

    def step(x):
        calls.append(x)
        sys.settrace(
            (lambda *event: None) if len(calls) in range(10, 30) else None
        )  # the last of the timed steps is the 16th
        return x + 1

    before = sys.gettrace()
    try:
        result = profile(step, DATA)
    finally:
        sys.settrace(before)
    assert result.value("step_time").detail["instrumented"] is True
    assert (
        len([note for note in result.notes if "Python was traced in the timed window" in note]) == 1
    )
    if before is None:
        assert (
            profile(lambda x: x + 1, DATA, name="again").value("step_time").detail["instrumented"]
            is False
        )


def test_coverage_pauses_where_steps_are_timed_and_not_in_the_first_step(profile):
    class Tracer:
        __module__ = "coverage.tracer"

        def __call__(self, frame, event, argument):
            return self

    before, tracer = sys.gettrace(), Tracer()
    sys.settrace(tracer)
    try:
        result = profile(lambda x: x + 1, DATA)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert result.value("step_time").detail["instrumented"] is False
    assert result.value("first_step_time").detail["instrumented"] is True
