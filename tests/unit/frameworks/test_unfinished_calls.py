"""Waits after the calls of a step: none without a bound, and one after as many calls as it says."""

from types import SimpleNamespace

import pytest

from pytest_tfperf.frameworks import unfinished_calls
from pytest_tfperf.frameworks.unfinished_calls import UnfinishedCalls


@pytest.fixture
def waited(monkeypatch):
    """What was waited for so far, in order."""
    log = []
    monkeypatch.setattr(unfinished_calls, "synchronise", lambda: log.append("devices"))
    monkeypatch.setattr(unfinished_calls, "fetch", log.append)
    return log


def with_bounds(monkeypatch, *bounds):
    frameworks = [SimpleNamespace(most_unfinished=lambda bound=bound: bound) for bound in bounds]
    monkeypatch.setattr(unfinished_calls, "in_use", lambda: frameworks)


def waits_after(calls, n_calls, waited):
    """The calls after which there was a wait, of so many."""
    found = []
    for number in range(n_calls):
        before = len(waited)
        calls.ended("output")
        if len(waited) > before:
            found.append(number)
    return found


def test_a_wait_follows_the_first_call_and_then_as_many_as_the_bound(monkeypatch, waited):
    for bounds, after in [
        ((None,), [0]),
        ((), [0]),
        ((8,), [0, 8, 16]),
        ((None, 8), [0, 8, 16]),
        ((5, 8), [0, 5, 10, 15]),
    ]:
        with_bounds(monkeypatch, *bounds)
        assert waits_after(UnfinishedCalls(), 20, waited) == after, bounds
    assert set(waited) == {"devices"}


def test_each_output_is_fetched_if_that_is_asked_for(monkeypatch, waited):
    with_bounds(monkeypatch, 8)
    assert waits_after(UnfinishedCalls(fetches=True), 3, waited) == [0, 1, 2]
    assert set(waited) == {"output"}
