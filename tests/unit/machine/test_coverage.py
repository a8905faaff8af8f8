"""coverage.py's own tracers within our windows, and others, which go on."""

import sys
import threading

import pytest

from pytest_tfperf.machine.conditions import coverage_paused, is_traced


class Tracer:
    """As coverage.py's tracer in C: an object that is called."""

    def __init__(self):
        self.lines = []

    def __call__(self, frame, event, argument):
        self.lines.append(frame.f_code.co_name)
        return self


class OfCoverage(Tracer):
    __module__ = "coverage.tracer"


@pytest.fixture
def traced():
    before, of_threads = sys.gettrace(), threading.gettrace()

    def by(tracer):
        threading.settrace(tracer)
        sys.settrace(tracer)
        return tracer

    yield by
    sys.settrace(before)
    threading.settrace(of_threads)


def step():
    return 1


def run_step():
    step()
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()


@pytest.mark.parametrize("has_error", [False, True])
def test_coverage_sees_nothing_within_and_all_after_it(traced, has_error):
    tracer = traced(OfCoverage())
    try:
        with coverage_paused():
            assert not is_traced()
            run_step()
            if has_error:
                raise KeyError
    except KeyError:
        pass
    assert "step" not in tracer.lines
    assert sys.gettrace() is tracer
    assert threading.gettrace() is tracer
    run_step()
    sys.settrace(None)
    assert tracer.lines.count("step") >= 2


def test_a_debugger_goes_on(traced):
    tracer = traced(Tracer())
    with coverage_paused():
        assert is_traced()
        step()
    sys.settrace(None)
    assert "step" in tracer.lines


class Monitoring:
    """As sys.monitoring of Python 3.12, which older versions lack."""

    DEBUGGER_ID, COVERAGE_ID, PROFILER_ID = 0, 1, 2

    def __init__(self):
        self.events = {1: 1}

    def get_tool(self, tool):
        return "coverage.py" if tool == 1 else None

    def get_events(self, tool):
        return self.events[tool]

    def set_events(self, tool, events):
        self.events[tool] = events


def test_a_tool_of_coverage_has_its_events_again_afterwards(monkeypatch):
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    monitoring = Monitoring()
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    with coverage_paused():
        assert not is_traced()
    assert monitoring.events == {1: 1}
    assert is_traced()
