"""Durations are kept in order, and take no memory while they are noted."""

import tracemalloc

from pytest_tfperf.capture.observations import Durations


def noted(*seconds):
    durations = Durations()
    for one in seconds:
        durations.append(one)
    return durations


def test_the_last_ones_are_returned_in_order():
    durations = noted(0.1, 0.2, 0.3)
    assert (len(durations), durations.last(2), durations.last(9)) == (
        3,
        [0.2, 0.3],
        [0.1, 0.2, 0.3],
    )
    assert durations.last(0) == []


def test_more_than_fit_at_first_are_kept():
    many = [float(n) for n in range(70_000)]
    assert noted(*many).last(len(many)) == many


def test_noting_them_takes_no_memory():
    durations = Durations()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50_000):
            durations.append(0.25)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1000
