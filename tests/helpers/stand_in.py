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

    def __init__(self, test):
        self._test = test
        self._folder = tempfile.mkdtemp(prefix="tfperf-", dir=test.scratch)
        test.environment = lambda: LAPTOP

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
            self._test.child.turn_client(name, self._test.wanted.max_regression)
            if self._test.child and times
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
                turn = client.ran(step_s * next(noise), None)
        test = self._test
        if test.kept_traces is not None and (test.child is None or test.child.keeps(name)):
            test.kept_traces.mkdir(parents=True)
            (test.kept_traces / "trace").write_text(str(step_s))
        measured = test.registry.measured(profile(name, workload, step_time=step_s, **metrics))
        test.results[name] = measured, test.wanted.limits

    @contextmanager
    def whole_body(self):
        yield
        self(1.0, times=False, retraces=0)

    def close(self):
        shutil.rmtree(self._folder)
