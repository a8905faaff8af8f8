"""The graphs of a step from what the probe saw."""

from __future__ import annotations

from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.recording import StepGraph


def step_graph(probe: Probe) -> StepGraph | str:
    """The graphs, or why there are none."""
    return probe.why or "not there yet"
