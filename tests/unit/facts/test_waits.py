"""Waits and drain of hand-made traces; times in ms."""

import numpy as np
import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.facts.waits import Drain, find_drain
from pytest_tfperf.metrics.shares import settling_steps
from pytest_tfperf.trace.xspace import decode_trace

NONE_TIMED = np.zeros(0, np.int64)


def trace_of(*lines):
    return decode_trace(space(plane("/host:CPU", *lines)))


def draining(step_ms, produce_ms, n_steps=20, limit=10, epoch_at=None):
    """Steps of so long that take an element each from a prefetch buffer, and a producer that makes one in so long."""
    marks, consumed, produced = [], [], []
    for n in range(n_steps):
        epoch = 0 if epoch_at is None or n < epoch_at else 1
        marks.append(
            at("train", n * step_ms, (n + 1) * step_ms, step_num=n, _r=1, tfperf=1, epoch=epoch)
        )
        begin = n * step_ms
        consumed += [
            at("Iterator::Root", begin, begin + 0.02, id=9, name="p"),
            at(
                "Iterator::Root::Prefetch",
                begin,
                begin + 0.01,
                id=1,
                parent_id=9,
                name="p",
                buffer_limit=str(limit),
            ),
            at("PrefetchConsume", begin + 0.001, begin + 0.002, element_id=n),
        ]
    for n in range(int(n_steps * step_ms / produce_ms)):
        begin = n * produce_ms
        produced += [
            at("PrefetchProduce", begin, begin + produce_ms - 0.01, element_id=n),
            at(
                "Iterator::Root::Prefetch::Map",
                begin + 0.001,
                begin + produce_ms - 0.02,
                id=2,
                parent_id=1,
                name="m",
            ),
            at(
                "Iterator::Root::Prefetch::Map::Range",
                begin + 0.002,
                begin + 0.003,
                id=3,
                parent_id=2,
                name="r",
            ),
        ]
    trace = trace_of(
        line("marks", *marks),
        line("python", *consumed),
        line("tf_data_iterator_resource/1", *produced),
    )
    return trace, find_steps(trace)


def test_a_buffer_that_drains_keeps_the_ratio_of_both_rates():
    trace, steps = draining(step_ms=10, produce_ms=12)
    drain = find_drain(trace, steps, np.zeros(20, np.int64), NONE_TIMED)
    assert drain.kept == pytest.approx(10 / 12, rel=1e-3)
    assert drain.corrected(0.0) == pytest.approx(1 / 6, rel=1e-2)
    assert drain.capacity == 10
    assert drain.buffered
    assert not drain.stationary()


def test_a_producer_that_keeps_up_drains_nothing():
    trace, steps = draining(step_ms=10, produce_ms=10)
    drain = find_drain(trace, steps, np.zeros(20, np.int64), NONE_TIMED)
    assert drain.kept == pytest.approx(1, abs=1e-9)
    assert drain.stationary()


def test_over_several_epochs_nothing_drains_for_good():
    trace, steps = draining(step_ms=10, produce_ms=12, epoch_at=10)
    drain = find_drain(trace, steps, np.zeros(20, np.int64), NONE_TIMED)
    assert (drain.kept, drain.capacity, drain.buffered) == (1, 0, False)


def test_stationary_at_the_boundary():
    cases = [
        (0.951, (0.1, 0.1), True),
        (0.949, (0.1, 0.1), False),
        (1.0, (0.0, 0.05), True),
        (1.0, (0.0, 0.051), False),
    ]
    for kept, halves, stationary in cases:
        assert Drain(kept=kept, capacity=1, halves=halves).stationary() is stationary, (
            kept,
            halves,
        )


def test_buffers_are_given_the_steps_that_they_take_to_drain_and_a_fifth_more():
    trace, _ = draining(step_ms=10, produce_ms=12, limit=10)
    assert settling_steps(trace, steps_before=10) == pytest.approx(1.2 * 10 * 6, abs=2)


def test_a_pipeline_that_keeps_up_needs_no_settling():
    trace, _ = draining(step_ms=10, produce_ms=10, limit=1000)
    assert settling_steps(trace, steps_before=0) == 0
