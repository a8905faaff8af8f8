"""Jumps of the wall clock."""

import time

import pytest

from pytest_tfperf.capture import sessions
from pytest_tfperf.capture.sessions import WallClock


@pytest.fixture
def clocks(monkeypatch):
    """Two clocks that a test sets: the one that can be set, and the other; `late` are delays of its readings."""

    class Clocks:
        wall, steady, late = 1e9, 50.0, iter(())

        def read_steady(self):
            self.go(next(self.late, 0.0))
            return self.steady

        def go(self, seconds, wall=None):
            self.steady += seconds
            self.wall += seconds if wall is None else wall

    clocks = Clocks()
    monkeypatch.setattr(sessions, "perf_counter", clocks.read_steady)
    monkeypatch.setattr(time, "time", lambda: clocks.wall)
    return clocks


def test_a_jump_is_what_the_clock_did_beside_the_other(clocks):
    for seconds, jump, found in [
        (1.0, 0.0, 0.0),
        (1.0, 3600.0, 3600.0),
        (1.0, -3600.0, -3600.0),
        (1.0, 0.0009, 0.0),
        (1.0, 0.0011, 0.0011),
        (1.0, -0.0011, -0.0011),
        (20.0, 0.0199, 0.0),  # as a clock that is slewed
        (20.0, -0.0201, -0.0201),
    ]:
        watched = WallClock()
        clocks.go(seconds, seconds + jump)
        assert watched.jump() == pytest.approx(found, abs=1e-6), (seconds, jump)


def test_an_interruption_between_two_readings_is_no_jump(clocks):
    watched = WallClock()
    clocks.late = iter([0.0, 0.4, 0.0, 0.0])
    assert watched.jump() == 0.0
