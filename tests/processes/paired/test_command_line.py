"""The cores and the arguments of child processes."""

import os
from types import SimpleNamespace

import pytest

from pytest_tfperf.child.command import invocation_arguments
from pytest_tfperf.child.reports import last_lines
from pytest_tfperf.machine.cores import format_cores, split_cores


@pytest.mark.parametrize(
    ("cores", "least", "split"),
    [
        ({3}, 1, ([], [])),
        ({3, 5}, 1, ([3], [5])),
        ({3, 5}, 2, ([], [])),
        ({5, 0, 1}, 2, ([0], [1, 5])),
    ],
)
def test_one_core_is_the_coordinators_where_enough_are_left(monkeypatch, cores, least, split):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    assert split_cores(least) == split


def test_where_processes_cannot_be_pinned_they_are_not(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert split_cores() == ([], [])


@pytest.mark.parametrize(
    ("cores", "text"),
    [([2], "core 2"), ([1, 2, 3], "cores 1-3"), ([0, 2, 3, 5], "cores 0, 2-3, 5")],
)
def test_cores_in_words(cores, text):
    assert format_cores(cores) == text


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], []),
        (["-q", "tests"], ["-q", "tests"]),
        (["-p", "pytest_tfperf.child.server", "--tfperf-child=7", "-q", "tests"], ["-q", "tests"]),
        (
            [
                "--no-cov",
                "-p",
                "pytest_tfperf.child.server",
                "--tfperf-child=12",
                "-p",
                "other",
            ],
            ["-p", "other"],
        ),
    ],
)
def test_arguments_are_given_on_as_they_were_given(arguments, given):
    assert (
        invocation_arguments(SimpleNamespace(invocation_params=SimpleNamespace(args=arguments)))
        == given
    )


def test_of_a_long_report_the_end_is_shown_and_how_much_comes_before():
    assert last_lines("a\nb") == "  a\n  b"
    shown = last_lines("\n".join(map(str, range(100)))).splitlines()
    assert shown[0] == "  … 70 lines before"
    assert shown[1:] == [f"  {number}" for number in range(70, 100)]
