"""Versions of JAX that are refused, in one sentence that names the version and the remedy."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.jax_framework import Jax, loaded_jax, why_refused


def test_versions_from_the_oldest_on_are_taken():
    for version in ["0.6.1", "0.6.10", "0.10.2", "1.0.0", "0.11.0.dev2026", "x"]:
        assert why_refused(version) is None, version


@pytest.mark.parametrize("version", ["0.6.0", "0.5.3", "0.4.38"])
def test_an_older_version_is_refused_with_the_remedy(version, monkeypatch):
    said = (
        f"pytest-tfperf needs JAX 0.6.1 or newer, and this is {version}, which lacks options of "
        "the profiler: pip install --upgrade jax"
    )
    assert why_refused(version) == said
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(jit=None, __version__=version))
    with pytest.raises(CaptureError, match=said):
        Jax().start_devices()


def test_a_failed_import_leaves_no_jax(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    assert loaded_jax() is None
    with pytest.raises(CaptureError, match="pip install jax"):
        Jax().version()
