"""Installed frameworks, the least length of a timed block, and waits after the calls of a step."""

from types import SimpleNamespace

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks import in_use
from pytest_tfperf.frameworks.in_use import UnfinishedCalls


def refuse():
    raise CaptureError("it is too old")


@pytest.fixture
def given(monkeypatch):
    """Install frameworks by name: True for one that can be imported."""

    def install(**can_load):
        monkeypatch.setattr(in_use, "is_installed", can_load.__contains__)
        for name, can in can_load.items():
            monkeypatch.setattr(in_use, f"load_{name}", (lambda: None) if can else refuse)

    return install


def test_those_that_can_be_imported_are_loaded(given):
    for can_load, names, refused in [
        ({"tensorflow": True, "jax": True}, ["TensorFlow", "JAX"], {}),
        ({"jax": True}, ["JAX"], {}),
        ({"tensorflow": True, "jax": False}, ["TensorFlow"], {"JAX": "it is too old"}),
        ({"tensorflow": False, "jax": True}, ["JAX"], {"TensorFlow": "it is too old"}),
    ]:
        given(**can_load)
        found = in_use.load_installed()
        assert ([framework.name for framework in found[0]], found[1]) == (names, refused), can_load


@pytest.mark.parametrize(
    ("can_load", "why"), [({}, "neither TensorFlow nor JAX"), ({"jax": False}, "^it is too old$")]
)
def test_without_any_there_is_an_error(given, can_load, why):
    given(**can_load)
    with pytest.raises(CaptureError, match=why):
        in_use.load_installed()


def test_a_folder_that_an_uninstallation_left_over_is_no_module(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "left_over" / "__pycache__").mkdir(parents=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").touch()
    assert not in_use.is_installed("left_over")
    assert in_use.is_installed("whole")
    assert not in_use.is_installed("no_such_module")


def test_least_seconds_of_a_block(monkeypatch):
    for behind, sync_s, step_s, n_left, seconds in [
        (False, 0.0001, 0.012, None, 0.02),
        (False, 0.001, 0.012, None, 0.05),
        (True, 0.0001, 0.0001, None, 0.02),
        (True, 0.0001, 0.012, None, 0.12),  # ten steps
        (True, 0.0001, 0.2, None, 0.5),
        (True, 0.0001, 0.012, 99, 0.108),  # nine steps, so that there are ten blocks
        (True, 0.0001, 0.012, 12, 0.02),
    ]:
        monkeypatch.setattr(in_use, "sync_cost", lambda sync_s=sync_s: sync_s)
        monkeypatch.setattr(in_use, "_runs_behind_python", lambda behind=behind: behind)
        case = (behind, sync_s, step_s, n_left)
        assert in_use.least_block(step_s, n_left) == pytest.approx(seconds), case


@pytest.fixture
def waited(monkeypatch):
    """What was waited for so far, in order."""
    log = []
    monkeypatch.setattr(in_use, "synchronise", lambda: log.append("devices"))
    return log


def with_bounds(monkeypatch, waited, *bounds):
    frameworks = [
        SimpleNamespace(most_unfinished=lambda bound=bound: bound, fetch=waited.append)
        for bound in bounds
    ]
    monkeypatch.setattr(in_use, "in_use", lambda: frameworks)


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
        with_bounds(monkeypatch, waited, *bounds)
        assert waits_after(UnfinishedCalls(), 20, waited) == after, bounds
    assert set(waited) == {"devices"}


def test_each_output_is_fetched_if_that_is_asked_for(monkeypatch, waited):
    with_bounds(monkeypatch, waited, 8)
    assert waits_after(UnfinishedCalls(fetches=True), 3, waited) == [0, 1, 2]
    assert set(waited) == {"output"}
