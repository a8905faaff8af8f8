"""The version matrix: its rows, what they install, and the workflow that runs the same."""

import importlib.util
import re
import sys

import pytest
from helpers.paths import ROOT

pytest.importorskip("tomllib", reason="the matrix itself runs on Python 3.11 or newer")


@pytest.fixture(scope="module")
def matrix():
    spec = importlib.util.spec_from_file_location("version_matrix", ROOT / "tests" / "matrix.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # for its dataclasses
    spec.loader.exec_module(made)
    yield made
    del sys.modules[spec.name]


def test_the_workflow_runs_the_same_rows(matrix):
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    rows = re.findall(r'row: "?([\w.]+)"?, python: "([\d.]+)"', workflow)
    assert rows == [(name, row.python) for name, row in matrix.ROWS.items()]


def test_every_supported_version_has_a_row(matrix):
    pythons = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert {row.python for row in matrix.ROWS.values()} == set(pythons) > {"3.10", "3.13"}
    tensorflows = {re.match(r"2\.\d+", row.tensorflow)[0] for row in matrix.ROWS.values()}
    assert tensorflows == {f"2.{minor}" for minor in range(18, 23)}


def test_a_row_installs_its_tensorflow_and_what_the_tests_need(matrix):
    needed = matrix.requirements(matrix.ROWS["2.19"])
    assert sum(one.startswith("tensorflow") for one in needed) == 1
    assert needed[-1].endswith("==2.19.*")
    assert any(one.startswith("hypothesis") for one in needed)
    assert not any(one.startswith("jax") for one in needed)
    assert any(one.startswith("jax") for one in matrix.requirements(matrix.ROWS["fast"]))
    assert not any(one.startswith(("ruff", "mypy")) for one in needed)


def test_the_lowest_row_pins_every_floor(matrix):
    needed = matrix.requirements(matrix.ROWS["lowest"])
    assert {"pytest==8.4", "numpy==1.26", "tabulate==0.9", "jinja2==3.1", "filelock==3.12"} <= set(
        needed
    )
    assert "keras==3.5.0" in needed


def test_a_missing_interpreter_is_said_and_fails_nothing(matrix, monkeypatch, tmp_path):
    monkeypatch.setattr(matrix, "interpreter", lambda version: None)
    found = matrix.run(matrix.ROWS["next"], tmp_path)
    assert (found.found, found.failed) == ("no Python 3.13 on this machine", False)
