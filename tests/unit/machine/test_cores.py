"""The cores that processes are pinned to."""

import os

from pytest_tfperf.machine.cores import format_cores, split_cores


def test_one_core_is_kept_for_the_coordinator_if_enough_are_left(monkeypatch):
    for cores, least, split in [
        ({3}, 1, ([], [])),
        ({3, 5}, 1, ([3], [5])),
        ({3, 5}, 2, ([], [])),
        ({5, 0, 1}, 2, ([0], [1, 5])),
    ]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        assert split_cores(least) == split, cores


def test_no_core_is_split_off_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert split_cores() == ([], [])


def test_cores_are_formatted_as_ranges():
    for cores, text in [
        ([2], "core 2"),
        ([1, 2, 3], "cores 1-3"),
        ([0, 2, 3, 5], "cores 0, 2-3, 5"),
    ]:
        assert format_cores(cores) == text, cores
