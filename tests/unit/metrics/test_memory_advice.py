"""Advice on memory: from which share of a device on, what pieces and growth add, what stays unknown."""

from dataclasses import replace

import pytest
from helpers.builders import profile, value

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.metrics.step_advice import advise
from pytest_tfperf.values import PARTS, Column, Source, Step, Table, Value

GIB = 1 << 30
KEYS = ("allocator", "peak", "capacity", "of_capacity", "fragmentation", "growth")


def allocator(used=0.5, pieces=None, growth=None, name="GPU_0_bfc", capacity=16 * GIB):
    if used is None:
        return (name, 8 * GIB, None, None, pieces, growth)
    return (name, int(used * capacity), capacity, used, pieces, growth)


def advised(*rows, **metrics):
    step = Step(name="train 0", period_s=0.1, parts_s=dict.fromkeys(PARTS, 0.0))
    table = Table.of("memory", [Column(key, key) for key in KEYS], rows)
    held = profile(steps=(step,), **metrics)
    return advise(replace(held, tables={"memory": table} if rows else {}))


def test_a_device_that_is_nearly_full():
    for used, speaks in [(0.9, True), (0.899, False), (1.0, True)]:
        found = advised(allocator(used))
        assert bool(found) is speaks, used
        if speaks:
            assert found[0].what.startswith("a smaller batch"), used
            assert found[0].because.startswith("GPU_0_bfc holds "), used
            assert (found[0].win_s, found[0].read) == (None, guides.MEMORY), used


def test_a_tpu_counts_and_the_host_does_not():
    assert advised(allocator(0.95, name="TPU:0"))
    assert advised(allocator(0.95, name="mklcpu")) == ()


def test_free_memory_in_pieces_counts_as_used():
    cases = [
        (0.75, 0.6, True),  # 75 % and 60 % of the other 25 %: 90 %
        (0.75, 0.59, False),
        (0.5, 0.8, True),
        (0.49, 0.99, False),  # an allocator that grows has asked for half of it only
        (0.75, None, False),
    ]
    for used, pieces, speaks in cases:
        found = advised(allocator(used, pieces))
        assert bool(found) is speaks, pieces
        if speaks:
            assert found[0].what.startswith("TF_GPU_ALLOCATOR=cuda_malloc_async"), pieces


def test_the_threshold_is_that_of_both():
    step = advised(allocator(0.95, 0.9))
    assert [one.what.split()[0] for one in step] == ["a"], "one piece of advice for one device"


def test_an_unknown_capacity_gives_no_advice():
    assert advised(allocator(None, 0.99)) == ()
    assert advised() == ()


class TestGrowth:
    def test_an_allocator_that_holds_more_from_step_to_step(self):
        found = advised(allocator(0.2, growth=4096.0))
        assert found[0].because == "GPU_0_bfc holds at least 4 KiB more a step"

    @pytest.mark.parametrize("growth", [0.0, None])
    def test_no_growth_and_unknown_growth_give_no_advice(self, growth):
        assert advised(allocator(0.2, growth=growth)) == ()

    def test_the_timed_window_comes_first(self):
        grown = value("memory_growth", 5000.0, low=2048.0, high=8000.0)
        found = advised(allocator(0.2, growth=4096.0), memory_growth=grown)
        assert [one.because for one in found] == [
            "the process holds at least 2 KiB more after each step"
        ]

    def test_its_interval_must_lie_above_zero(self):
        for low, speaks in [(0.0, False), (0.1, True), (-1.0, False)]:
            grown = Value.of("memory_growth", 10.0, Source.TIMED, low=low, high=20.0)
            assert bool(advised(memory_growth=grown)) is speaks, low


def test_thresholds_and_frameworks_can_be_given():
    step = Step(name="train 0", period_s=0.1, parts_s=dict.fromkeys(PARTS, 0.0))
    table = Table.of("memory", [Column(key, key) for key in KEYS], [allocator(0.8)])
    held = replace(profile(steps=(step,)), tables={"memory": table})
    (found,) = advise(held, JAX, replace(THRESHOLDS, memory=0.8))
    assert "jax.checkpoint" in found.what
    assert found.read == guides.JAX_MEMORY
