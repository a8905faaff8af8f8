"""The arguments of child processes, and the end of their reports."""

from types import SimpleNamespace

from pytest_tfperf.turns.pytest_child import invocation_arguments
from pytest_tfperf.turns.reports import last_lines


def test_invocation_arguments_are_those_of_the_run_without_those_of_a_parent():
    cases = [
        ([], []),
        (["-q", "tests"], ["-q", "tests"]),
        (
            ["-p", "pytest_tfperf.turns.child_plugin", "--tfperf-child=7", "-q", "tests"],
            ["-q", "tests"],
        ),
        (
            [
                "--no-cov",
                "-p",
                "pytest_tfperf.turns.child_plugin",
                "--tfperf-child=12",
                "-p",
                "other",
            ],
            ["-p", "other"],
        ),
    ]
    for arguments, expected in cases:
        assert (
            invocation_arguments(SimpleNamespace(invocation_params=SimpleNamespace(args=arguments)))
            == expected
        ), arguments


def test_last_lines_of_a_long_report_follow_a_count():
    assert last_lines("a\nb") == "  a\n  b"
    shown = last_lines("\n".join(map(str, range(100)))).splitlines()
    assert shown[0] == "  … 70 lines before"
    assert shown[1:] == [f"  {number}" for number in range(70, 100)]
