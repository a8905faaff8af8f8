"""
A pytest plugin for paired runs without TensorFlow: steps take as long as their tests say, to the last digit, and nobody waits for them.

All else is real: pytest, git, the processes, the turns that they take, and what is decided. Steps are numbers of seconds.
"""

import os
import sys

import pytest
from helpers import quick_start, without_capture
from helpers.stand_in import FakeProfiler

from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.turns import pytest_child as process

IS_CHILD = any(argument.startswith("--tfperf-child") for argument in sys.argv)
AHEAD = "TFPERF_TEST_AHEAD"
"""Environment variable; with it a second pair of processes starts with the first, as it does for users."""

without_capture.replace_modules(FakeProfiler)
if not IS_CHILD and any(argument.startswith("--tfperf-against") for argument in sys.argv):
    from pytest_tfperf.plugin import paired_run
    from pytest_tfperf.turns.pairs import VersionProcesses

    pinned = paired_run.constant_spread(pinned=True)
    paired_run.constant_spread = lambda _: pinned  # one core is enough for these
    if AHEAD not in os.environ:
        paired_run.VersionProcesses = lambda *given, starts_ahead: VersionProcesses(*given)

import pytest_tfperf.plugin.decide  # noqa: E402
from pytest_tfperf.frameworks import in_use  # noqa: E402
from pytest_tfperf.plugin.profiled_item import ProfiledItem  # noqa: E402

# Both would load TensorFlow, to see its GPUs.
pytest_tfperf.plugin.decide.why_gpus_are_full = str
ProfiledItem.exclusive = staticmethod(measuring_anyway)
in_use.has_accelerators = lambda: False
pytest_sessionstart = quick_start.pytest_sessionstart
PATIENCE_S = 3  # with a test that hangs; all others may take as long as ever


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    usual = process.READY_S
    process.READY_S = PATIENCE_S if "hangs" in item.name else usual
    try:
        return (yield)
    finally:
        process.READY_S = usual
