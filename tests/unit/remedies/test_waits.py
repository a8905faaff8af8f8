"""Waits for other measurements, which take none of the time for remedies."""

from contextlib import contextmanager

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.remedies import apart
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.turns.messages import AtCall


class Child:
    """A process that comes to the call, and ends when it hears what to try."""

    def __init__(self):
        self.heard = []

    def run(self, test, part):
        pass

    def next_event(self, seconds):
        return AtCall()

    def send(self, message):
        self.heard.append(message)
        raise CaptureError("it has heard")


def test_remedies_have_their_whole_time_after_a_wait_for_other_measurements(request, monkeypatch):
    now, child = [0.0], Child()

    @contextmanager
    def exclusive(announce):
        now[0] += 100.0
        yield

    @contextmanager
    def children(item, specs, grace_s):
        yield [child]

    monkeypatch.setattr(apart, "perf_counter", lambda: now[0])
    monkeypatch.setattr(apart, "children", children)
    trials = apart.TrialProcesses(request.node, lambda _: None, exclusive)
    with pytest.raises(CaptureError, match="it has heard"):
        trials(Call(step=lambda: None), "", 60.0)
    assert [one.seconds for one in child.heard] == [60.0]
