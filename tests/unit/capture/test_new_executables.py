"""Executables that appear after the first step, and those that are freed before anything lists them."""

from pathlib import Path

import pytest

from pytest_tfperf.capture import windows
from pytest_tfperf.capture.windows import Executables


@pytest.fixture
def executables(monkeypatch):
    """Executables whose traces are the names that are alive."""
    monkeypatch.setattr(windows, "live_modules", frozenset)
    monkeypatch.setattr(windows, "traced", lambda: ())
    found = Executables(Path())
    found.begin({"JAX": ["jit_step(1)"]})
    monkeypatch.setattr(windows, "traced", lambda: ("JAX",))
    return found


def test_those_that_are_alive_at_the_end_count_once(executables):
    executables.compiled("jit_step")
    executables.end({"JAX": ["jit_step(1)", "jit_step(2)"]})
    assert executables.late == ("jit_step(2)",)


def test_those_that_were_freed_count_too(executables):
    for _ in range(3):
        executables.compiled("jit_step")
    executables.compiled("jit_other")
    executables.end({"JAX": ["jit_step(1)", "jit_step(4)"]})
    assert executables.late == ("jit_step(4)", "jit_step", "jit_step", "jit_other")


def test_nothing_counts_before_the_first_step_has_ended(monkeypatch):
    found = Executables(Path())
    found.compiled("jit_step")
    assert found.late is None


def test_it_is_unknown_where_nothing_is_traced(executables, monkeypatch):
    monkeypatch.setattr(windows, "traced", lambda: ())
    executables.end({})
    assert executables.late is None
