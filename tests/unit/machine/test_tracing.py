"""Detection of Python tracing."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.machine.conditions import is_traced

TOOLS = {"DEBUGGER_ID": 0, "COVERAGE_ID": 1, "PROFILER_ID": 2}


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """No tracer is active, even if one follows these tests."""
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(**TOOLS, get_tool={}.get), raising=False)


def test_untraced_by_default():
    assert not is_traced()


def test_python_without_monitoring_is_untraced(monkeypatch):
    monkeypatch.delattr(sys, "monitoring")
    assert not is_traced()


def test_settrace_and_setprofile_count_as_tracing(monkeypatch):
    for name in ("gettrace", "getprofile"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, lambda: print)
            assert is_traced(), name


def test_monitoring_tools_that_cost_time_count_as_tracing(monkeypatch):
    for tool, traced in [(0, True), (1, True), (2, True), (5, False)]:
        tools = SimpleNamespace(**TOOLS, get_tool={tool: "its name"}.get)
        monkeypatch.setattr(sys, "monitoring", tools)
        assert is_traced() is traced, tool
    for events in (0, 1):  # none while it is paused
        own = {"get_tool": {1: "coverage.py"}.get, "get_events": lambda tool, n=events: n}
        monkeypatch.setattr(sys, "monitoring", SimpleNamespace(**TOOLS, **own))
        assert is_traced() is bool(events)
