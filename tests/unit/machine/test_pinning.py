"""Pinning of processes to cores, as turns need it."""

import os

import pytest

from pytest_tfperf.machine.cores import can_pin, pinned

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system has no affinity"
)


def test_one_core_cannot_be_pinned_to():
    assert not can_pin([])
    assert not can_pin([0])


def test_affinity_that_is_not_kept_cannot_pin(monkeypatch):
    for after, said in (({3}, True), ({3, 5}, False)):
        held = [{3, 5}, after]
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, held=held: held[0])
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores, held=held: held.reverse())
        assert can_pin([3, 5]) is said, after


def test_affinity_that_is_refused_cannot_pin(monkeypatch):
    def refuse(_, cores):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not can_pin([0, 1])


def test_pinning_ends_with_its_context():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), pinned([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with pinned([]):
        assert os.sched_getaffinity(0) == before
