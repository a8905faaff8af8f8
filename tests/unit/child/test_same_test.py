"""Failures of a test in a process of its own, as messages of this one."""

from types import SimpleNamespace

import pytest

from pytest_tfperf.child import same_test
from pytest_tfperf.child.same_test import SameTest


@pytest.mark.parametrize("n_lines", [1, 500])
def test_the_error_is_shown_however_much_was_printed(monkeypatch, n_lines):
    printed = "".join(f"W0000 line {n}\n" for n in range(n_lines))
    report = SimpleNamespace(
        failed=True,
        longreprtext="traceback\nE   ValueError: a bad step",
        sections=[("Captured stdout call", "  \n"), ("Captured stderr call", printed)],
    )
    monkeypatch.setattr(same_test, "report_from", lambda item, data: report)
    test = SameTest.__new__(SameTest)
    test._item = None
    child = SimpleNamespace(reports=["of the test"])
    lines = str(test.failed(child, "worker 0", {"ended": True})).splitlines()
    assert lines[:3] == [
        "worker 0 fails in its process:",
        "  traceback",
        "  E   ValueError: a bad step",
    ]
    assert lines[-1] == f"  W0000 line {n_lines - 1}"
    assert len(lines) < 40
