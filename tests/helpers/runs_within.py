"""Runs of pytest within this process in which a stand-in measures: they start no process and load no framework."""

from helpers.stand_in import FakeProfiler

from pytest_tfperf.frameworks import in_use
from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.plugin import conclude, decide, fixture  # pytester forgets later imports
from pytest_tfperf.plugin.profiled_item import ProfiledItem

MANY = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.tfperf(max_retraces=3, eager_ops=1, max_step_time="1 s")
@pytest.mark.parametrize("n", range({first}, {first} + 20))
def test_step(tf_profile, n):
    tf_profile(0.5, retraces=n % 7, eager_ops=n % 2)
    tf_profile(0.25, "second", retraces=n % 3, eager_ops=1)
"""
"""Twenty tests with two profiles each; of 14 in a row 4 keep their limits."""


def measure_with_stand_in(monkeypatch):
    """Let the stand-in measure in the runs of a test."""
    monkeypatch.setattr(fixture, "TfProfile", FakeProfiler)
    monkeypatch.setattr(ProfiledItem, "exclusive", staticmethod(measuring_anyway))
    monkeypatch.setattr(conclude, "commit", lambda _: "")  # both ask git
    monkeypatch.setattr(conclude, "branch", lambda _: "")
    # both would load TensorFlow, to see its GPUs
    monkeypatch.setattr(in_use, "has_accelerators", lambda: False)
    monkeypatch.setattr(decide, "why_gpus_are_full", str)
