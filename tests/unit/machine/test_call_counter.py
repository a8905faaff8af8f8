"""Calls of Python functions whose number is counted by hand, beside other profilers."""

import cProfile
import gc
import sys
import threading
import time
import types
from pathlib import Path

import pytest

import pytest_tfperf
from pytest_tfperf.capture.blocks import garbage_held_off
from pytest_tfperf.machine.calls import REPLACED, CallCounter
from pytest_tfperf.recording import PythonCalls
from pytest_tfperf.values import Unknown

MONITORS = hasattr(sys, "monitoring")
HERE = Path(__file__).name
needs_one_place = pytest.mark.skipif(
    MONITORS, reason="from Python 3.12 on each tool has a place of its own"
)


def called(*steps, size=1):
    """What the counter finds in these steps, without the collector, whose callbacks are Python."""
    counter = CallCounter()
    with garbage_held_off(), counter:
        for step in steps:
            counter.begin()
            step()
            counter.end(size)
    return counter.found()


def names(found):
    """The calls a step of each function, by the end of its name."""
    assert isinstance(found, PythonCalls), found
    return {one.name.rpartition(".")[2].rpartition(":")[2]: one.calls for one in found.functions}


def leaf():
    return 1


def recursive(n):
    return 0 if n == 0 else recursive(n - 1)


def failing():
    raise ValueError("no step")


def numbers(n):
    yield from range(n)


def plain():
    leaf()
    leaf()
    recursive(3)


def test_functions_and_recursion_are_counted_in_each_step():
    found = called(plain, leaf, plain)
    assert found.steps == ((7, 1), (1, 1), (7, 1))
    # self, two and one leaves, recursive(3) to recursive(0)
    assert names(found) == {
        "plain": pytest.approx(2 / 3),
        "leaf": pytest.approx(5 / 3),
        "recursive": pytest.approx(8 / 3),
    }


def test_the_most_frequent_function_comes_first_with_its_file_and_line():
    found = called(plain)
    assert [one.calls for one in found.functions] == [4, 2, 1]
    first = found.functions[0]
    assert first.name.endswith(f"{HERE}:recursive")
    assert first.line == recursive.__code__.co_firstlineno
    assert 0 < first.self_s < 1


def test_a_pause_in_one_of_the_steps_is_no_time_of_the_function_that_it_stops():
    pauses = iter((0.0, 0.5, 0.0))
    (found,) = called(*[lambda: time.sleep(next(pauses))] * 3).functions
    assert found.self_s < 0.5 / 3  # the mean is longer


def test_a_generator_counts_at_its_start_and_at_each_resumption():
    def step():
        list(numbers(3))

    # three elements, and the end
    assert names(called(step)) == {"step": 1, "numbers": 4}


def test_comprehensions_are_part_of_the_function_around_them():
    def inner(n):
        return [{row + column for column in range(n)} for row in range(n)]

    def step():
        inner(3)
        return {n: n for n in range(3)}

    found = called(step)
    assert found.steps == ((2, 1),)
    counted = {name: calls for name, calls in names(found).items() if calls}
    assert counted == {"step": 1, "inner": 1}
    lines = {one.line for one in found.functions if one.calls}
    assert lines == {step.__code__.co_firstlineno, inner.__code__.co_firstlineno}


def test_built_in_functions_are_not_counted():
    def step():
        len([])
        sorted([2, 1], key=abs)
        "a".upper()

    assert called(step).steps == ((1, 1),)


def test_a_function_that_raises_and_a_callback_of_a_built_in_are_counted():
    def step():
        with pytest.raises(ValueError, match="no step"):
            failing()
        sorted([2, 1], key=lambda number: number)

    found = names(called(step))
    assert (found["failing"], found["<lambda>"]) == (1, 2)


def test_nothing_is_counted_between_steps_or_without_the_context():
    counter = CallCounter()
    counter.begin()
    plain()
    counter.end(1)
    with counter:
        plain()
        counter.begin()
        plain()
        counter.abort()  # as at the end of an epoch
        plain()
        counter.begin()
        leaf()
        counter.end(1)
        plain()
    assert counter.found().steps == ((1, 1),)


def test_steps_that_loop_inside_a_call_share_its_calls():
    found = called(plain, size=2)
    assert found.steps == ((7, 2),)
    assert names(found)["leaf"] == 1


def test_functions_of_this_package_are_left_out_and_what_they_call_is_not():
    inside = str(Path(pytest_tfperf.__file__).parent / "capture" / "made.py")
    code = compile("def wrapper(function):\n    return function()", inside, "exec")
    module = types.ModuleType("made")
    exec(code, module.__dict__)

    assert names(called(lambda: module.wrapper(leaf))) == {"<lambda>": 1, "leaf": 1}


def test_other_threads_are_not_counted():
    go, over = threading.Event(), threading.Event()

    def other():
        while not over.is_set():
            plain()
            go.set()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        go.wait()
        found = called(leaf, leaf)
    finally:
        over.set()
        thread.join()
    assert found.steps == ((1, 1), (1, 1))


@needs_one_place
def test_a_profiler_that_runs_already_stays_and_makes_the_counts_unknown():
    events = []

    def watch(frame, event, argument):
        events.append(event)

    sys.setprofile(watch)
    try:
        found = called(leaf)
        assert sys.getprofile() is watch
    finally:
        sys.setprofile(None)
    assert isinstance(found, Unknown)
    assert "watch) is set already, and Python 3." in found.why
    assert events


@needs_one_place
def test_a_running_cprofile_stays_and_makes_the_counts_unknown():
    profile = cProfile.Profile()
    profile.enable()
    try:
        found = called(leaf)
        assert sys.getprofile() is profile
    finally:
        profile.disable()
    assert "Profile) is set already" in found.why
    assert any(getattr(entry.code, "co_name", "") == "leaf" for entry in profile.getstats())


@needs_one_place
@pytest.mark.parametrize(
    "setting", [lambda: sys.setprofile(print_nothing), lambda: sys.setprofile(None)]
)
def test_a_profiler_that_the_step_sets_or_removes_makes_the_counts_unknown(setting):
    def step():
        setting()
        leaf()

    try:
        found = called(leaf, step)
        kept = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert found == Unknown(REPLACED)
    assert kept in (print_nothing, None)


def print_nothing(frame, event, argument):
    """A profiler of the user."""


@needs_one_place
def test_a_cprofile_that_the_step_starts_goes_on_as_it_was_set():
    profile = cProfile.Profile()
    try:
        found = called(lambda: profile.enable(builtins=False))
        gc.collect()  # which could end the replaced profiler, and with it this one
        assert sys.getprofile() is profile
        leaf()
        len([])
    finally:
        profile.disable()
    assert found == Unknown(REPLACED)
    names = {getattr(entry.code, "co_name", entry.code) for entry in profile.getstats()}
    assert "leaf" in names
    assert not any("len" in name for name in names)


def test_a_tracer_stays_and_changes_no_count():
    lines = []

    def trace(frame, event, argument):
        lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = called(plain)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert found.steps == ((7, 1),)
    assert lines


def test_an_error_in_a_step_leaves_no_profiler():
    counter = CallCounter()
    with pytest.raises(ValueError, match="no step"), counter:
        counter.begin()
        failing()
    assert sys.getprofile() is None
    if MONITORS:
        assert not any(sys.monitoring.get_tool(tool) for tool in (3, 4))
