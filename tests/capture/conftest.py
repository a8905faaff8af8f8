"""Profiles of real TensorFlow, in this process, with short windows."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.profiles import Settings


@pytest.fixture
def profile():
    """What a test gets as `tf_profile`, with windows of 3, 12 and 6 steps."""
    profiler = TfProfile(
        Settings(wanted=Wanted.read({"warmup": 3, "steps": 12, "trace_steps": 6}), plan=Plan())
    )
    yield profiler
    profiler.close()
