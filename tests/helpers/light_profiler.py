"""
A conftest.py for compare with data: all is real but the profiles, which are without TensorFlow, of steps that need no more than their turns.
"""

import time

import pytest
from helpers import builders, quick_start, without_capture

pytest_sessionstart = quick_start.pytest_sessionstart

from pytest_tfperf.frameworks import in_use  # noqa: E402
from pytest_tfperf.turn import Ready  # noqa: E402
from pytest_tfperf.turns import pytest_child as process  # noqa: E402
from pytest_tfperf.variants import turns  # noqa: E402
from pytest_tfperf.variants.comparison import ComparisonCall  # noqa: E402
from pytest_tfperf.variants.outputs import Tolerance  # noqa: E402

in_use.has_accelerators = lambda: False
turns.why_gpus_are_full = str
in_use.n_gpus = lambda: 0  # all three would load TensorFlow, to see its GPUs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    usual = process.READY_S
    process.READY_S = 1.0 if "hangs" in item.name else usual
    try:
        return (yield)
    finally:
        process.READY_S = usual


class Light:
    def __init__(self, test):
        self.test, self.profiles = test, {}
        test.environment = lambda: builders.LAPTOP

    def __call__(self, step, name, batch=4, most=10**9, time_of_step=0.002):
        child = self.test.child
        client = child.turn_client(name, None) if child else None
        workload = {"inputs": [], "batch": batch}
        turn = (
            client.ready(
                Ready(workload=workload, call_s=time_of_step, least_s=time_of_step, most_calls=None)
            )
            if client
            else None
        )
        while turn is not None and most > 0:
            for _ in range(turn.untimed):
                step()
            start = time.perf_counter()
            for _ in range(turn.timed):
                step()
            most -= turn.untimed + turn.timed
            turn = client.ran((time.perf_counter() - start) / turn.timed, None)
        return self.add(builders.profile(name, workload, step_time=time_of_step))

    def add(self, profile):
        self.profiles[profile.name] = profile
        self.test.results[profile.name] = profile, ()
        return profile

    def compare(self, steps, name="", max_seconds=0.4, outputs=None, **options):
        names = {variant: f"{name} {variant}".strip() for variant in steps}

        def measure(variant):
            profile = self(steps[variant], names[variant], **options.get(variant, {}))
            return profile, {"output": (outputs or {}).get(variant)}

        tolerance = Tolerance() if outputs else None
        found = self.test.compare(
            ComparisonCall(
                profiles=names, max_seconds=max_seconds, tolerance=tolerance, measure=measure
            )
        )
        for profile in found.profiles.values():
            self.add(profile)
        return found

    def close(self):
        pass


without_capture.replace_modules(Light)
