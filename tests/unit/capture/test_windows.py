"""The machine lock and the timers of the windows, without TensorFlow, on a fake clock."""

from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_tfperf.capture import blocks, sessions, windows
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.windows import WindowHooks, Windows
from pytest_tfperf.compiler.step_calls import Calls, Probe
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.machine import clocks, memory
from pytest_tfperf.machine.conditions import Interference
from pytest_tfperf.variants import turns

STEP_S = 0.001
PLAN = Plan(warmup=3, steps=4, trace_steps=2)


class FakeRun:
    """
    A run of steps of a millisecond each, on a fake clock.

    `steps` holds for each step whether the lock was held; `waits` are the seconds of waiting for it.
    """

    def __init__(self, waits=(), drains=()):
        self.now, self.alone, self.steps, self.taken = 0.0, False, [], 0
        self._waits, self._drains = iter(waits), iter(drains)
        self.settled_after = []

    @contextmanager
    def exclusive(self, announce, *timers):
        with ExitStack() as pauses:
            for timer in timers:
                pauses.enter_context(timer.paused())
            waited = next(self._waits, 0)
            self.now += waited
        self.taken += 1
        self.alone = True
        try:
            yield waited > 0
        finally:
            self.alone = False

    def settle(self, trace, steps_before, fetches):
        assert not self.alone  # analysis needs no lock
        self.settled_after.append(steps_before)
        return next(self._drains, 0)

    def windows(self, plan=PLAN, exclusive=None):
        hooks = WindowHooks(
            settling_steps=self.settle,
            announce=lambda _: None,
            exclusive=exclusive or self.exclusive,
        )
        return Windows(plan, Path(), "step", hooks)

    def run_steps(self, profile, n_steps=10**9):
        while not profile.done and n_steps:
            n_steps -= 1
            profile.begin()
            self.now += STEP_S
            self.steps.append(self.alone)
            profile.end()


class Session:
    def __init__(self, folder):
        pass

    def stop(self):
        return {"TensorFlow": Path("trace")}

    def discard(self):
        pass


class Executables:
    outside_steps, watched, late = False, True, frozenset()

    def __init__(self, folder):
        pass

    def begin(self, trace):
        pass

    def end(self, last=None):
        pass


class Mark:
    def __init__(self, *numbers, **more):
        pass

    def end(self):
        pass


@contextmanager
def probed(in_step):
    probe = Probe()
    yield probe
    probe.calls.end_step()


@pytest.fixture
def run_of(monkeypatch):
    def make(**happens):
        run = FakeRun(**happens)
        for module in (blocks, clocks, windows):
            monkeypatch.setattr(module, "perf_counter", lambda: run.now)
        return run

    fakes = {
        "Session": Session,
        "Executables": Executables,
        "StepMark": Mark,
        "UnfinishedCalls": lambda _: SimpleNamespace(ended=lambda output: None),
        "probed": probed,
        "why_not_probed": lambda: None,
        "synchronise": lambda output=None: None,
        "least_block": lambda *_: 0.02,
        "read_sessions": lambda traces: traces,
        "runs_functions": lambda trace: False,
        "n_events": lambda trace: 1000,
        "calls_recorded": lambda in_step: nullcontext(Calls()),
    }
    monkeypatch.setattr(memory, "accelerator_bytes", lambda: None)
    monkeypatch.setattr(Interference, "watched", lambda _: nullcontext())
    monkeypatch.setattr(memory, "tensor_bytes", lambda: None)
    monkeypatch.setattr(sessions.Fetching, "of", lambda self, from_python, in_trace: self)
    for name, fake in fakes.items():
        monkeypatch.setattr(windows, name, fake)
        if hasattr(blocks, name):
            monkeypatch.setattr(blocks, name, fake)
    return make


def test_lock_is_held_in_the_timed_and_traced_windows_only(run_of):
    run = run_of()
    run.run_steps(run.windows())
    # cold, warm-up; timed, traced; probe, counted
    assert run.steps == [False] * (1 + 3) + [True] * (4 + 2) + [False] * (1 + 3)
    assert (run.taken, run.settled_after) == (1, [3])


def test_no_step_is_probed_where_nothing_of_it_would_be_recorded(run_of, monkeypatch):
    run = run_of()
    monkeypatch.setattr(windows, "why_not_probed", lambda: "TensorFlow is not loaded")
    profile = run.windows()
    run.run_steps(profile)
    assert run.steps == [False] * (1 + 3) + [True] * (4 + 2) + [False] * 3  # no probe, 3 counted
    assert profile.observations.probe.why == "TensorFlow is not loaded"


def test_each_timed_call_has_its_next_and_the_pause_before_it(run_of, monkeypatch):
    run = run_of()
    pauses = iter([0.5, 0.25, 9.0])
    monkeypatch.setattr(
        memory.MemoryUse, "sample", lambda self, n: setattr(run, "now", run.now + next(pauses))
    )
    monkeypatch.setattr(blocks, "least_block", lambda *_: 0.006)  # blocks of two steps of 3 ms
    profile = run.windows()
    while not profile.done:
        profile.begin()
        if profile.n_steps == 5:
            with pytest.raises(StopIteration), profile.fetching(from_python=False):
                run.now += 7.0
                raise StopIteration
            run.now -= 7.0
        with profile.fetching(from_python=False):
            run.now += 0.002
        run.now += STEP_S
        profile.end()
    fetches = profile.observations.fetches
    assert fetches.next_s == pytest.approx([0.002] * 4)
    assert fetches.call_s == pytest.approx([0.003] * 4)
    assert fetches.pause_s == pytest.approx([0.5, 0, 0.25, 0])
    assert sum(seconds for seconds, _ in profile.observations.blocks) == pytest.approx(4 * 0.003)


def test_steps_that_fetch_nothing_have_no_fetches(run_of):
    run = run_of()
    profile = run.windows()
    run.run_steps(profile)
    assert profile.observations.fetches is None


def test_waiting_for_the_lock_is_not_timed(run_of):
    run = run_of(waits=[100.0])
    profile = run.windows()
    run.run_steps(profile)
    assert profile.observations.first_step_s == pytest.approx(STEP_S)
    assert profile.observations.blocks == [(pytest.approx(4 * STEP_S), 4)]
    assert profile.observations.step_seconds == pytest.approx([STEP_S] * 4)
    assert [*profile.observations.window_notes] == ["lock"]  # no window was cut
    assert len(run.steps) == 1 + 3 + 4 + 2 + 1 + 3


def test_no_step_has_drained_the_buffers_after_waiting(run_of):
    run = run_of(waits=[0.1])
    run.run_steps(run.windows())
    assert run.settled_after == [0]


def test_second_round_drains_under_the_lock_and_keeps_its_time(run_of):
    run = run_of(waits=[100.0, 100.0], drains=[5])
    profile = run.windows()
    run.run_steps(profile)
    assert run.steps == [False] * 4 + [True] * (4 + 2) + [True] * (5 + 4 + 2) + [False] * (1 + 3)
    assert (run.taken, run.settled_after) == (2, [0, 5])
    assert profile.observations.settled


def test_round_beyond_the_time_limit_does_not_begin(run_of):
    run = run_of(drains=[10**6])
    profile = run.windows()
    run.run_steps(profile)
    assert run.taken == 1
    assert not profile.observations.settled


@pytest.mark.parametrize("n_steps", [5, 8, 9])
def test_closed_profile_releases_the_lock(run_of, n_steps):
    run = run_of()
    profile = run.windows()
    run.run_steps(profile, n_steps)
    assert run.alone
    profile.close("the loop was left")
    assert not run.alone


def test_missing_lock_ends_the_profile_with_its_reason(run_of):
    @contextmanager
    def refusing(announce, *timers):
        raise CaptureError("no lock")
        yield

    run = run_of()
    profile = run.windows(exclusive=refusing)
    with pytest.raises(CaptureError, match="no lock"):
        run.run_steps(profile)
    assert len(run.steps) == 4
    profile.close()


def test_variants_in_turns_hold_the_lock_and_do_not_time_waiting(monkeypatch):
    run, announced = FakeRun(waits=[100.0]), []
    monkeypatch.setattr(turns, "perf_counter", lambda: run.now)
    for name, fake in {
        "start_devices": None,
        "synchronise": None,
        "least_block": 0.02,
        "check_variants": (),
        "UnfinishedCalls": SimpleNamespace(ended=lambda: None),
    }.items():
        monkeypatch.setattr(turns, name, lambda *_, fake=fake: fake)

    def step():
        run.now += STEP_S
        run.steps.append(run.alone)

    variants = [turns.Variant(name, step) for name in ("plain", "xla")]
    found = turns.compare_steps(variants, {}, None, 30.0, announced.append, run.exclusive)
    assert run.steps
    assert all(run.steps)
    assert not run.alone
    assert len(found.turns["plain"]) == 8  # as many as without waiting
    assert announced == ["comparing plain, xla, about 10 s", ""]
