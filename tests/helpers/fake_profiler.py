"""
A pytest plugin for paired runs without TensorFlow: steps take as long as their tests say, to the last digit, and nobody waits for them.

All else is real: pytest, git, the processes, the turns that they take, and what is decided. Steps are numbers of seconds.
"""

import itertools
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager

import pytest
from helpers import quick_start, without_capture
from helpers.builders import LAPTOP, WORKLOAD, profile

from pytest_tfperf.child import process
from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.turns import Ready

IS_CHILD = any(argument.startswith("--tfperf-child") for argument in sys.argv)
AHEAD = "TFPERF_TEST_AHEAD"
"""Environment variable; with it a second pair of processes starts with the first, as it does for users."""

without_capture.replace_modules()
if IS_CHILD:
    without_capture.replace_variants()  # they start faster
elif any(argument.startswith("--tfperf-against") for argument in sys.argv):
    from pytest_tfperf.paired.processes import VersionProcesses
    from pytest_tfperf.plugin import paired_run

    pinned = paired_run.constant_spread(pinned=True)
    paired_run.constant_spread = lambda _: pinned  # one core is enough for these
    if AHEAD not in os.environ:
        paired_run.VersionProcesses = lambda *given, starts_ahead: VersionProcesses(*given)

import pytest_tfperf.plugin.confirmation  # noqa: E402
import pytest_tfperf.plugin.items  # noqa: E402

# Both would load TensorFlow, to see its GPUs.
pytest_tfperf.plugin.confirmation.takes_whole_gpus = lambda: False
pytest_tfperf.plugin.items._exclusive = lambda *_: measuring_anyway
pytest_tfperf.plugin.items.has_accelerators = lambda: False
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


class FakeProfiler:
    """The fake `tf_profile`; `during` is called in every turn with the number of turns so far."""

    def environment(self):
        return LAPTOP

    def __init__(self, settings):
        self._settings = settings
        self._results = {}
        self._folder = tempfile.mkdtemp(prefix="tfperf-", dir=settings.scratch)

    def __call__(
        self,
        step_s,
        name="",
        workload=WORKLOAD,
        most_calls=None,
        during=lambda n: None,
        times=True,
        **metrics,
    ):
        client = (
            self._settings.turn_clients(name, self._settings.wanted.max_regression)
            if self._settings.turn_clients and times
            else None
        )
        if client is not None:
            turn = client.ready(
                Ready(workload=workload, call_s=1e-4, least_s=1e-3, most_calls=most_calls)
            )
            noise = itertools.cycle([1.0005, 0.9995])
            for n in itertools.count():
                if turn is None:
                    break
                during(n)
                turn = client.ran(step_s * next(noise))
        if self._settings.keep is not None and self._settings.keeps(name):
            self._settings.keep.mkdir(parents=True)
            (self._settings.keep / "trace").write_text(str(step_s))
        measured = self._settings.registry.measured(
            profile(name, workload, step_time=step_s, **metrics)
        )
        self._results[name] = measured, self._settings.wanted.limits

    @contextmanager
    def whole_body(self):
        yield
        self(1.0, times=False, retraces=0)

    def results(self):
        return list(self._results.values())

    def end(self):
        pass

    def unmade(self):
        return []

    def close(self):
        shutil.rmtree(self._folder)


pytest_tfperf.plugin.items.TfProfile = FakeProfiler
