"""
A stand-in for `tf_profile`, without TensorFlow: steps take as long as their tests say, to the last digit, and nobody waits for them.

Steps are numbers of seconds, and all other metrics are named: `tf_profile(0.5, retraces=2)`.
"""

import itertools
import shutil
import tempfile
from contextlib import contextmanager

from helpers.builders import LAPTOP, WORKLOAD, profile

from pytest_tfperf.turn import Ready


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
