"""Residuals of earlier runs in the user's cache folder."""

import json
from pathlib import Path

import pytest

from pytest_tfperf.stats.process_spread import Residuals
from pytest_tfperf.turns.spread_store import store_residuals, stored_residuals


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pytest-tfperf" / "process_spread.json"


def test_runs_add_up_for_each_kind_of_pinning(file):
    assert stored_residuals([1]) == Residuals()
    store_residuals(Residuals(total=0.5, degrees=2), [1])
    store_residuals(Residuals(total=0.25, degrees=1), [2])
    store_residuals(Residuals(total=0.125, degrees=4), [])
    assert stored_residuals([3]) == Residuals(total=0.75, degrees=3)
    assert stored_residuals([]) == Residuals(total=0.125, degrees=4)
    assert stored_residuals([1, 2]) == Residuals()


def test_a_run_without_residuals_leaves_no_file(file):
    store_residuals(Residuals(), [1])
    assert not file.exists()


def test_the_last_fifty_runs_are_kept(file):
    for n in range(60):
        store_residuals(Residuals(total=float(n), degrees=1), [1])
    assert stored_residuals([1]) == Residuals(total=float(sum(range(10, 60))), degrees=50)


def test_a_file_that_is_not_understood_counts_as_none_and_is_replaced(file):
    cases = [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 1, "classes": {"x": [[1, 2]]}}',
        '{"format": 2, "classes": {"x": [[1]]}}',
        '{"format": 2, "classes": {"x": 3}}',
        '{"format": 2, "classes": {"x": [["a", 2]]}}',
    ]
    for text in cases:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        assert stored_residuals([1]) == Residuals(), text
        store_residuals(Residuals(total=1.0, degrees=1), [1])
        assert stored_residuals([1]) == Residuals(total=1.0, degrees=1), text
        assert json.loads(file.read_text())["format"] == 2, text


def test_a_cache_that_cannot_be_written_is_left_alone(file):
    file.parent.parent.mkdir(parents=True)
    file.parent.write_text("a file in the place of the folder")
    store_residuals(Residuals(total=1.0, degrees=1), [1])
    assert stored_residuals([1]) == Residuals()


def test_a_relative_folder_is_not_used(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store_residuals(Residuals(total=1.0, degrees=1), [1])
    assert (tmp_path / "home/.cache/pytest-tfperf/process_spread.json").is_file()


def test_without_a_home_nothing_is_stored(monkeypatch):
    def home(_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(home))
    store_residuals(Residuals(total=1.0, degrees=1), [1])
    assert stored_residuals([1]) == Residuals()
