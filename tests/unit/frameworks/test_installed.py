"""Frameworks that are installed: those that can be imported, and why others cannot."""

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks import installed
from pytest_tfperf.frameworks.jax_framework import Jax
from pytest_tfperf.frameworks.tensorflow_framework import TensorFlow

FRAMEWORKS = {"TensorFlow": ("tensorflow", TensorFlow()), "JAX": ("jax", Jax())}


def refuse():
    raise CaptureError("it is too old")


@pytest.fixture
def given(monkeypatch):
    """Install frameworks by name: True for one that can be imported."""

    def install(**can_load):
        loaders = {
            name: (*FRAMEWORKS[name], (lambda: None) if can_load.get(name) else refuse)
            for name in FRAMEWORKS
        }
        modules = {FRAMEWORKS[name][0] for name in can_load}
        monkeypatch.setattr(installed, "_LOADERS", loaders)
        monkeypatch.setattr(installed, "is_installed", modules.__contains__)

    return install


def test_those_that_can_be_imported_are_loaded(given):
    for can_load, names, refused in [
        ({"TensorFlow": True, "JAX": True}, ["TensorFlow", "JAX"], {}),
        ({"JAX": True}, ["JAX"], {}),
        ({"TensorFlow": True, "JAX": False}, ["TensorFlow"], {"JAX": "it is too old"}),
        ({"TensorFlow": False, "JAX": True}, ["JAX"], {"TensorFlow": "it is too old"}),
    ]:
        given(**can_load)
        found = installed.load_installed()
        assert ([framework.name for framework in found[0]], found[1]) == (names, refused), can_load


@pytest.mark.parametrize(
    ("can_load", "why"), [({}, "neither TensorFlow nor JAX"), ({"JAX": False}, "^it is too old$")]
)
def test_without_any_there_is_an_error(given, can_load, why):
    given(**can_load)
    with pytest.raises(CaptureError, match=why):
        installed.load_installed()


def test_a_folder_that_an_uninstallation_left_over_is_no_module(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "left_over" / "__pycache__").mkdir(parents=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").touch()
    assert not installed.is_installed("left_over")
    assert installed.is_installed("whole")
    assert not installed.is_installed("no_such_module")
