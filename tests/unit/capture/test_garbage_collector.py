"""The garbage collector is held off in blocks, runs between them, and is restored."""

import gc

import pytest

from pytest_tfperf.capture import blocks
from pytest_tfperf.capture.blocks import garbage_held_off


@pytest.fixture(autouse=True)
def collector():
    """Enable the collector with Python's usual thresholds, without garbage of other tests; restore it."""
    gc.freeze()
    on, thresholds = gc.isenabled(), gc.get_threshold()
    gc.enable()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if on else gc.disable)()


@pytest.fixture
def collected():
    """List the collected generations."""
    found = []

    def collecting(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(collecting)
    yield found
    gc.callbacks.remove(collecting)


def cycles(n):
    for _ in range(n):
        own = []
        own.append(own)


def test_no_garbage_is_collected_within_blocks(collected):
    with garbage_held_off():
        del collected[:]
        cycles(20_000)
        assert collected == []
    assert gc.get_threshold() == (700, 10, 10)
    cycles(2_000)
    assert collected


def test_young_generations_are_collected_between_blocks(collected):
    with garbage_held_off() as sweep:
        del collected[:]
        cycles(100)
        sweep()
        assert collected == []
        cycles(1_000)
        sweep()
        assert collected == [1]
        sweep()
        assert collected == [1]


def test_block_that_would_fill_the_memory_is_collected(collected, monkeypatch):
    monkeypatch.setattr(blocks, "_MOST_YOUNG", 5_000)
    with garbage_held_off():
        del collected[:]
        cycles(4_000)
        assert collected == []
        cycles(2_000)
        assert collected


def test_full_collection_runs_after_growth_by_a_quarter(collected, monkeypatch):
    objects = [1000]
    monkeypatch.setattr(blocks.sys, "getallocatedblocks", lambda: objects[0])
    found = {}
    with garbage_held_off() as sweep:
        for n in (
            1250,
            1251,
            1563,
            1564,
        ):  # 1.25 times the first, and then 1.25 times what was left
            objects[0] = n
            cycles(1_000)
            del collected[:]
            sweep()
            found[n] = list(collected)
    assert found == {1250: [1], 1251: [1, 2], 1563: [1], 1564: [1, 2]}


def test_objects_are_not_counted_without_new_ones(monkeypatch):
    with garbage_held_off() as sweep:
        sweep()
        monkeypatch.setattr(
            blocks.sys,
            "getallocatedblocks",
            lambda: pytest.fail("it walks through all of Python's memory"),
        )
        sweep()


def test_objects_of_many_blocks_do_not_accumulate():
    old = []
    with garbage_held_off() as sweep:
        start = blocks.sys.getallocatedblocks()
        for _ in range(30):  # every block leaves cycles that the next but two drops
            own = [[[]] for _ in range(start // 40)]
            own.append(own)
            old = [*old[-2:], own]
            sweep()
        assert blocks.sys.getallocatedblocks() < 1.7 * start


def test_disabled_collector_stays_disabled(collected):
    gc.disable()
    with garbage_held_off() as sweep:
        cycles(1_000)
        sweep()
        assert gc.get_threshold() == (700, 10, 10)
    assert not gc.isenabled()
    assert collected == []
    gc.enable()
    gc.set_threshold(0, 10, 10)
    with garbage_held_off() as sweep:
        cycles(1_000)
        sweep()
    assert gc.get_threshold() == (0, 10, 10)
    assert collected == []


@pytest.mark.parametrize("fails", [True, False])
def test_changes_by_the_user_within_the_context_stay(collected, fails):
    try:
        with garbage_held_off() as sweep:
            gc.disable()
            del collected[:]
            cycles(1_000)
            sweep()
            assert collected == []
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert not gc.isenabled()
    assert gc.get_threshold() == (700, 10, 10)


def test_threshold_set_within_the_context_stays():
    with garbage_held_off():
        gc.set_threshold(900, 11, 12)
    assert gc.get_threshold() == (900, 11, 12)


def test_frozen_objects_stay_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with garbage_held_off() as sweep:
        cycles(1_000)
        sweep()
    assert gc.get_freeze_count() == frozen > 0
