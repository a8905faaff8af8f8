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


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tools of PEP 669 are from Python 3.12 on")
def test_a_tool_of_coverage_has_its_events_again_afterwards():
    monitoring = sys.monitoring
    tool = next(n for n in range(6) if monitoring.get_tool(n) is None)
    monitoring.use_tool_id(tool, "coverage.py")
    try:
        monitoring.set_events(tool, monitoring.events.PY_START)
        with coverage_paused():
            assert monitoring.get_events(tool) == 0
        assert monitoring.get_events(tool) == monitoring.events.PY_START
    finally:
        monitoring.free_tool_id(tool)
