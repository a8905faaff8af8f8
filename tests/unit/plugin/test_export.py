"""Messages of stages that a step of JAX does not have."""

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.plugin.export import export_profile
from pytest_tfperf.recording import Recording

OF_JAX = Recording(name="step", trace=None, workload={}, framework="JAX")


def test_hlo_before_optimisation_needs_the_executables_of_a_trace(tmp_path):
    with pytest.raises(CaptureError, match="the step has no HLO: nothing was traced"):
        export_profile(OF_JAX, None, tmp_path / "step.txt", "unoptimized")


def test_without_a_trace_there_is_nothing_to_export(tmp_path):
    with pytest.raises(CaptureError, match="there is no trace to export: nothing was traced"):
        export_profile(OF_JAX, None, tmp_path / "step.txt", "optimized")
