"""
The windows of a profile: consecutive phases of one run of the user's steps.

cold (step 0) → warm-up → timed (profiler off) → traced → turns (with other processes) → probe (a
step that shows its graphs) → counted (calls of Python functions). The driver of the steps calls
`begin` and `end` around each one, `end_epoch` between epochs, and stops when `done`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.blocks import BlockTimer, garbage_held_off, mean_period_s, run_turns
from pytest_tfperf.capture.input_data import elements_to_keep
from pytest_tfperf.capture.kept_objects import Containers
from pytest_tfperf.capture.observations import Epochs, Observations
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.sessions import Fetching, ReadTraces, Session, StepMark, read_sessions
from pytest_tfperf.capture.stack_samples import FIRST_S, WARM_S, stack_times, stacks_sampled
from pytest_tfperf.compiler.source_lines import line_of_code, user_line_now
from pytest_tfperf.compiler.step_calls import (
    Probe,
    calls_recorded,
    other_threads,
    probed,
    why_not_probed,
)
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.frameworks.in_use import UnfinishedCalls, least_block, synchronise, traced
from pytest_tfperf.frameworks.jax_objects import tree_code
from pytest_tfperf.function_traces import FIRST, SHAPE, TRACED_AGAIN, Change, FunctionTrace
from pytest_tfperf.machine.calls import CallCounter
from pytest_tfperf.machine.clocks import Stopwatch, any_ran, cpu_ns
from pytest_tfperf.machine.conditions import coverage_paused, is_traced
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.recording import Fetches, Kept, Recording
from pytest_tfperf.stats.slope import FEWEST
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.host_events import n_events, runs_functions
from pytest_tfperf.turn import Ready, TurnClient
from pytest_tfperf.values import WAITS, Unknown

__tracebackhide__ = True

_MAX_ROUNDS, _MAX_PROBES = 3, 10
_WAITED = "the input buffers could fill while this test waited for another one of this machine"
_WARM_UP_SHARE, _TRACED_SHARE = 0.2, 0.3  # of the time limit, for one round of windows
_IN_A_ROW = 5
_OF_TF_DATA = "Dataset_"
"""Start of the names of functions of tf.data (structured_function.py): each pipeline traces its."""
_LONG_S = 1.0  # of a phase that is announced


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowHooks:
    """Functions that the windows call, and the announcement of long phases."""

    settling_steps: Callable[[ReadTraces, int, Fetches | None], int]
    """
    Returns the number of steps to wait before the windows are measured again, 0 if not needed.

    Takes the traces, the number of steps since the last pause, in which input buffers drained, and
    the fetches of the timed window.
    """
    announce: Callable[[str], None]
    """Receives a text for each long phase, and an empty text at the end."""
    exclusive: Exclusive
    """Keeps other processes from measuring at the same time."""
    turn_client: TurnClient | None = None
    most_retraces: float = math.inf
    """Largest number of retraces that no limit forbids."""
    most_compiles: float = math.inf
    """Same of compilations by XLA."""
    most_growth: float = math.inf
    """Largest growth of the memory that no limit forbids, in bytes a step."""

    @property
    def fewest_samples(self) -> int:
        """Samples of the memory that decide a limit on its growth; the first is left out."""
        return FEWEST + 1 if self.most_growth < math.inf else 0


class Windows:
    """The state of one profile while its steps run; `kind` is step, train, test or predict."""

    def __init__(self, plan: Plan, folder: Path, kind: str, hooks: WindowHooks) -> None:
        self.plan, self.kind = plan, kind
        self.done = self.enough = False  # enough: the windows that the profile needs are full
        self.watched: frozenset[str] = frozenset()  # frameworks that report to `function_traced`
        self.n_steps, self.epochs = 0, Epochs()
        self.inputs: Mapping[str, Any] = {"inputs": [], "batch": None}
        self.last_output: Any = None
        self.read: ReadTraces = {}  # the traces of the traced window
        self.observations = Observations()
        self._folder, self._hooks = folder, hooks
        self._progress = Progress(hooks.announce, plan.max_seconds)
        self._running_calls, self._running_probe = self.observations.calls, self.observations.probe
        self._timer, self._total_timer = BlockTimer(plan), Stopwatch()
        self._session: Session | None = None
        self._mark: StepMark | None = None
        self._fetching, self._counter = Fetching(self._timer.fetched), CallCounter()
        self._in_step, self._unfinished = False, UnfinishedCalls(plan.latency)
        self._n_cold_traces, self._in_turns, self._turned = 0, False, (0, 0)  # steps and epochs
        self._n_traced = self._most_elements = 0  # steps, and elements to keep, of a session
        self._anew = TracedAnew(plan.warmup, hooks.most_retraces, hooks.most_compiles)
        self._executables, self._others = Executables(folder), other_threads()
        self._containers: Containers | None = None  # before the timed window, if growth is limited
        self._kept: tuple[Kept, ...] = ()
        self._sequence = self._run_windows()
        next(self._sequence)

    def begin(self, size: int | None = None) -> None:
        """Start a call of `size` steps (default: the plan's `steps_per_call`)."""
        self._timer.steps_per_call = self.plan.steps_per_call if size is None else size
        if self._executables.outside_steps:
            with self._timer.lap_timer.paused():
                self._executables.return_to_steps()
        if self.epochs.begin_step(self.n_steps) and self._session is None:
            self._timer.epoch_began()
        self._in_step = True
        if not self.n_steps:
            self._timer.lap_timer.restart()
        if self._session is not None:
            more = {"epoch": self.epochs.n_ended, "batches": self._timer.steps_per_call}
            self._mark = StepMark(self.kind, self.n_steps, **more)
        self._counter.begin()

    def fetching(self, from_python: bool) -> Fetching:
        """Return a context for the `next()` of a step."""
        return self._fetching.of(from_python, in_trace=self._session is not None)

    def end(self, output: Any = None) -> None:
        """End the step, and do what is due between two steps."""
        self._counter.end(self._timer.steps_per_call)
        self._unfinished.ended(output)
        self._end_mark()
        self._in_step = False
        self.n_steps += 1
        why = self._anew.end_step(self.n_steps)
        samples = self.observations.memory.n_samples
        if why and not self.enough and samples >= self._hooks.fewest_samples:
            self._end_early(why)
        else:
            self.done = next(self._sequence, True) is True  # the sequence yields None

    def consumed(self, element: Any) -> None:
        """Keep an element that the running step consumes."""
        kept = self.observations.elements.kept
        if not self.n_steps:
            self._most_elements = elements_to_keep(element)
        elif self._session is not None and len(kept) < self._most_elements:
            kept.append(element)

    def abort(self) -> None:
        """Discard the step that began, since its epoch had no more data."""
        self._counter.abort()
        if self._mark is not None:
            self._mark.abort()
        self._running_calls.abort_step()
        self._running_probe.calls.abort_step()
        self._end_mark()
        self._in_step = False
        self.end_epoch()

    def end_epoch(self) -> None:
        """End an epoch; the time until the next step begins is its gap."""
        self.epochs.end()

    def leave_steps(self) -> None:
        """Do not count executables compiled until the next step, for example by a validation."""
        if self._session is None and not self._executables.outside_steps and self.n_steps:
            with self._timer.lap_timer.paused():
                self._executables.leave_steps()

    def function_traced(self, name: str, changes: Sequence[Change]) -> None:
        """Record that a framework traced a function after changes, if a step was running."""
        if self._in_step and self.n_steps and get_ident() in self._others:
            self.observations.made_elsewhere.append(name)
        elif self._in_step and not self.n_steps:
            self._n_cold_traces += 1
        elif self._in_step and not self._in_turns:
            self._anew.traced(name, changes)
            step = self.n_steps - self._turned[0]
            traced = FunctionTrace(name, step, tuple(changes), user_line_now())
            self.observations.retraces.append(traced)

    def executable_compiled(self, module: str) -> None:
        """Record that JAX compiled a module, which may be freed before a session lists it."""
        if self.n_steps and get_ident() in self._others:
            self.observations.made_elsewhere.append(module)
        elif self.n_steps and not self._in_turns and (self._in_step or not self.enough):
            self._executables.compiled(module)
            self._anew.compiled()

    def close(self, reason: str | None = None) -> None:
        """End the profile at any point; with a reason, keep the observations so far."""
        self._sequence.close()
        self._end_mark()
        self._progress.end()
        is_kept = reason is not None and not self.enough
        if is_kept:
            self.observations.ended = reason
        is_kept = is_kept and self._executables.watched
        if is_kept and self._session is not None and self._n_traced:
            self._stop()
            return
        if self._session is not None:
            self._session.discard()
            self._session = None
        if is_kept:
            self._executables.end()

    def _end_early(self, why: str) -> None:
        """End the windows with the counts so far, and without times."""
        self._look_for_kept()
        self.close(why)
        self.done = True
        self.observations.blocks, self.observations.step_seconds = [], []
        self.observations.fetches = None

    def recording(self, name: str, ran: Sequence[str], **others: Any) -> Recording:
        """Return the recording of an ended profile; `ran` begins with the framework of its ops."""
        seen = self.observations
        late = self._executables.late if ran[0] in {**seen.cold, **seen.traces} else None
        return Recording(
            name=name,
            trace=seen.traces.get(ran[0]),
            input_trace=None if ran[0] == TENSORFLOW else seen.traces.get(TENSORFLOW),
            framework=ran[0],
            beside=tuple(ran[1:]),
            first_step_s=seen.first_step_s,
            blocks=tuple(seen.blocks),
            block_cpu_s=seen.block_cpu_s,
            step_seconds=tuple(seen.step_seconds),
            fetches=seen.fetches,
            epoch_gaps_s=tuple(seen.epoch_gaps_s.values()),
            epoch_starts=tuple(seen.epoch_gaps_s),
            made_elsewhere=tuple(dict.fromkeys(seen.made_elsewhere)),
            other_threads=seen.other_threads,
            epoch_iters_s=tuple(seen.epoch_iters_s),
            epoch_work_s=seen.epoch_work_s,
            cold=seen.cold.get(ran[0]),
            eager=tuple(
                (op_type, line, count) for (op_type, line), count in seen.probe.eager.items()
            ),
            callbacks=seen.probe.callbacks,
            batches=seen.batches(),
            python_calls=seen.python_calls,
            first_stacks=seen.first_stacks,
            stacks=seen.stacks,
            memory=seen.memory.samples,
            memory_bound=seen.memory.bound,
            pipeline=seen.pipeline(),
            settled=seen.settled,
            instrumented=seen.instrumented,
            first_step_instrumented=seen.first_step_instrumented,
            interference=seen.interference.remarks,
            other_load=seen.interference.other_load,
            ended=seen.ended,
            window_notes=seen.window_notes,
            notes=(*seen.interference.remarks, *seen.probe.calls.notes(seen.calls)),
            n_steps=self.n_steps - self._turned[0],
            n_epochs=self.epochs.n_ended - self._turned[1],
            epoch_calls=self.epochs.length,
            compiled=late,
            traced=tuple(seen.retraces) if ran[0] in self.watched else None,
            kept=self._kept,
            **others,
        )

    def _look_for_kept(self) -> None:
        """Find what the process keeps from step to step, if its growth may break a limit."""
        limit = self._hooks.most_growth
        if self._containers is not None and self.observations.memory.most_growth > limit:
            n_calls = self.n_steps - self._containers.n_calls
            with suppress(Exception):  # of the user's objects, all of which are looked at
                self._kept = self._containers.kept(n_calls * self.plan.steps_per_call, limit / 10)

    def _run_windows(self) -> Generator[None]:
        """Run all windows; each `yield` is one step, and code between two runs between steps."""
        yield from self._cold_window()
        self._total_timer.restart()
        period_s = yield from self._warm_up_window()
        self.plan = self._timer.plan = self.plan.in_epochs(self.epochs.length, period_s)
        drain, steps_before = 0, self.n_steps - 1
        for rounds_left in reversed(range(_MAX_ROUNDS)):
            began = self.n_steps + drain
            waited = yield from self._round(drain, period_s)
            # Input buffers fill while this process waits for others.
            n_drained = drain or (0 if waited else steps_before)
            drain = self._hooks.settling_steps(self.read, n_drained, self.observations.fetches)
            self.observations.settled = not drain
            period_s = mean_period_s(self.observations)
            n_needed = drain + self.n_steps - began
            if not drain or not rounds_left or not self._has_room(n_needed, period_s):
                break
        self.enough = True
        call_s = period_s * self.plan.steps_per_call
        yield from self._turns(call_s)
        yield from self._probe_step()
        yield from self._counted_window(call_s)
        self._executables.end()  # the last steps may have compiled too

    def _round(self, drain: int, period_s: float) -> Generator[None, None, bool]:
        """Run the windows under the machine lock after `drain` steps; return if others held it."""
        self.read = {}  # they would count as memory of the steps
        timers = self._timer.lap_timer, self._total_timer
        with self._hooks.exclusive(self._hooks.announce, *timers) as waited:
            self._progress.begin(
                f"waiting {drain} steps for the input buffers to drain", drain * period_s
            )
            for _ in range(drain):
                yield
            n_planned = max(self.plan.timed_steps + self.plan.traced_steps, 1)
            self._progress.begin("measuring", n_planned * period_s)
            if self._hooks.most_growth < math.inf:
                self._containers = Containers(self.n_steps)
            with coverage_paused():
                with garbage_held_off() as collect, self.observations.interference.watched():
                    yield from self._timer.timed_window(
                        self.observations, self.n_steps, period_s, collect, self.epochs.length
                    )
                self.observations.instrumented |= is_traced()
                yield from self._traced_window()
        self.observations.memory.end()
        self._look_for_kept()  # what the loop keeps may be freed when it ends
        if waited:
            self.observations.window_notes["lock"] = _WAITED
        return waited

    def _has_room(self, n_steps: int, period_s: float) -> bool:
        seconds = self._total_timer.elapsed() + 1.5 * n_steps * period_s
        return seconds <= self.plan.max_seconds and self.plan.has(self.n_steps + n_steps)

    def _cold_window(self) -> Generator[None]:
        self.observations.memory.begin()
        self._session = Session(self._folder)
        with stacks_sampled(FIRST_S) as stacks:
            yield
            synchronise(self.last_output)
            self.observations.first_step_s = self._timer.lap_timer.lap()
        self.observations.first_stacks = stack_times(stacks, 1)
        self.observations.first_step_instrumented = is_traced()
        session, self._session = self._session, None
        assert session is not None
        self.observations.cold = session.stop()
        traces = read_sessions(self.observations.cold)
        self._executables.begin(traces)
        self.plan, cut = self.plan.of_events(sum(map(n_events, traces.values())))
        self.observations.window_notes |= cut
        if not self._n_cold_traces and any(map(runs_functions, traces.values())):
            self.observations.first_step_s = Unknown(
                "its functions had been traced before, so this was no first step"
            )
        self._timer.lap_timer.restart()

    def _warm_up_window(self) -> Generator[None, None, float]:
        """Run the warm-up; return the period of a step in its second half."""
        n_steps, half = 0, 0
        limit_s = self.plan.max_seconds * _WARM_UP_SHARE
        with stacks_sampled(WARM_S) as stacks:
            while n_steps < self.plan.warmup and self._total_timer.elapsed() < limit_s:
                if n_steps == self.plan.warmup // 2:
                    synchronise(self.last_output)
                    self._timer.lap_timer.restart()
                    half = n_steps
                yield
                n_steps += 1
            synchronise(self.last_output)
        self.observations.stacks = stack_times(stacks, max(n_steps, 1))
        self.observations.window_notes |= self.plan.cut_note("warm-up", n_steps, self.plan.warmup)
        return max(self._timer.lap_timer.elapsed(), 0.0) / max(n_steps - half, 1)

    def _traced_window(self) -> Generator[None]:
        deadline = perf_counter() + self.plan.max_seconds * _TRACED_SHARE
        self._session, self._n_traced = Session(self._folder), 0
        self.observations.elements.kept.clear()
        before = cpu_ns(other_threads())
        with calls_recorded(self._computes) as self._running_calls:
            for n_steps in range(1, self.plan.traced_steps + 1):
                yield
                self._n_traced = n_steps
                self._running_calls.end_step(self._timer.steps_per_call)
                if perf_counter() > deadline and n_steps >= 2:
                    self.observations.window_notes |= self.plan.cut_note(
                        "traced", n_steps, self.plan.traced_steps
                    )
                    break
        self.observations.other_threads = any_ran(before)
        synchronise(self.last_output)
        self._stop()

    def _turns(self, call_s: float) -> Generator[None]:
        if self._hooks.turn_client is None:
            return
        most = self.plan.turns_at_most(self.n_steps)
        ready = Ready(
            workload=self.inputs,
            call_s=call_s,
            least_s=least_block(call_s, most),
            most_calls=most,
            epoch_calls=self.epochs.length,
        )
        before, self._in_turns = (self.n_steps, self.epochs.n_ended), True
        try:
            with coverage_paused():
                yield from run_turns(self._hooks.turn_client, ready, self._timer.turn)
        finally:
            self._in_turns = False
            self._turned = self.n_steps - before[0], self.epochs.n_ended - before[1]

    def _probe_step(self) -> Generator[None]:
        """Run one more step like most traced steps, if the data allow, to record its graphs."""
        if why := why_not_probed():
            self.observations.probe = Probe(why=why)
            return
        n_probes = 0
        while (
            n_probes < _MAX_PROBES
            and self.plan.has(self.n_steps + 1)
            and not self.observations.probe.calls.like(self.observations.calls)
        ):
            with probed(self._computes) as self._running_probe:
                yield
                n_probes += 1
            self.observations.probe = self._running_probe

    def _counted_window(self, call_s: float) -> Generator[None]:
        if why := self.plan.why_not_counted(self.n_steps, call_s):
            self.observations.python_calls = Unknown(why)
            return
        with garbage_held_off(), self._counter:
            for _ in range(self.plan.counted_steps):
                yield
        self.observations.python_calls = self._counter.found(line_of_code, tree_code())

    def _computes(self) -> bool:
        return self._in_step and not self._fetching.runs

    def _stop(self) -> None:
        """End the traced window, and read its traces."""
        session, self._session = self._session, None
        self.observations.calls = self._running_calls
        assert session is not None
        self.observations.traces = session.stop()
        self.read = read_sessions(self.observations.traces)
        self._executables.end(self.read)

    def _end_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.end()


class Executables:
    """
    The XLA executables of one profile; those compiled while no step runs do not count.

    Each profiler session lists all executables that are alive, so sessions before and after the
    steps show the new ones. JAX reports also those that are freed in between.
    """

    def __init__(self, folder: Path) -> None:
        self.late: tuple[str, ...] | None = None  # compiled after the first step, None if unknown
        self._folder = folder
        self._first: frozenset[str] | None = None
        self._outside: frozenset[str] = frozenset()
        self._before_outside: frozenset[str] | None = None
        self._reported: Counter[str] = Counter()

    @property
    def watched(self) -> bool:
        """True if the first step has ended."""
        return self._first is not None

    @property
    def outside_steps(self) -> bool:
        """True if executables compiled now do not count."""
        return self._before_outside is not None

    def begin(self, cold: ReadTraces) -> None:
        """Begin after the first step, with its traces; a framework may have started in it."""
        is_complete = all(framework.name in cold for framework in traced())
        self._first = _modules(cold) if is_complete else self._live()

    def compiled(self, module: str) -> None:
        """Count the compilation of a module after the first step, unless no step runs."""
        if self.watched and not self.outside_steps:
            self._reported[module] += 1

    def leave_steps(self) -> None:
        """Stop counting until `return_to_steps`."""
        self._before_outside = self._live()

    def return_to_steps(self) -> None:
        """Count again, since a step begins."""
        assert self._before_outside is not None
        self._outside |= self._live() - self._before_outside
        self._before_outside = None

    def end(self, last: ReadTraces | None = None) -> None:
        """End after the steps, with their traces if there are any."""
        assert self._first is not None
        alive = self._live() if last is None else _modules(last)
        late = alive - self._first - self._outside
        # JAX before 0.8 ends the module of a lambda in an underscore, which reports lack
        listed = Counter(name.rpartition("(")[0].rstrip("_") for name in late)
        freed = (self._reported - listed).elements()
        self.late = (*sorted(late), *freed) if traced() else None

    def _live(self) -> frozenset[str]:
        """Return the executables alive now, from a session that records nothing."""
        return _modules(read_sessions(Session(self._folder).stop()))


def _modules(traces: ReadTraces) -> frozenset[str]:
    every = frozenset().union(*map(live_modules, traces.values()))
    return frozenset(name for name in every if WAITS not in name)


class TracedAnew:
    """
    The steps at the end of a profile so far that were each traced or compiled anew.

    Traces of a sound step may fill a warm-up, so only further steps count where no limit is set.
    Where one is, the counts go on until it is broken: else they would be too small, and pass.
    """

    def __init__(
        self, warmup: int, most_traces: float = math.inf, most_compiles: float = math.inf
    ) -> None:
        self._warmup = warmup
        self._most_traces, self._most_compiles = most_traces, most_compiles
        self._n_traces = self._n_compiles = self._in_a_row = 0
        self._is_anew = self._is_explained = False  # the running step; all steps in a row

    def traced(self, name: str, changes: Sequence[Change]) -> None:
        """
        Add a trace of the running step; a first trace is no change.

        New shapes explain a trace, and so does a new pipeline, as `Model.predict` makes one.
        """
        self._n_traces += 1
        kinds = {change.kind for change in changes}
        self._is_anew |= bool(kinds - {FIRST})
        self._is_explained |= name.startswith(_OF_TF_DATA) or SHAPE in kinds

    def compiled(self) -> None:
        """Add a compilation of the running step."""
        self._n_compiles += 1

    def end_step(self, n_steps: int) -> str | None:
        """Return why no further step is needed after `n_steps`, or None."""
        self._in_a_row = self._in_a_row + 1 if self._is_anew else 0
        self._is_anew = False
        if not self._in_a_row:
            self._is_explained = False
        is_red = self._n_traces > self._most_traces or self._n_compiles > self._most_compiles
        is_limited = min(self._most_traces, self._most_compiles) < math.inf
        goes_on = is_limited or self._is_explained or n_steps <= self._warmup
        if self._in_a_row < _IN_A_ROW or (goes_on and not is_red):
            return None
        each = self._in_a_row == n_steps - 1
        which = "each" if each else f"the last {self._in_a_row} of which were"
        return f"stopped after {n_steps} steps, {which} {TRACED_AGAIN}"


class Progress:
    """
    Announcements of the phases of a profile, each of `most_s` at most; an empty text ends one.
    """

    def __init__(self, announce: Callable[[str], None], most_s: float) -> None:
        self._announce, self._most_s = announce, most_s
        self._announced = False

    def begin(self, phase: str, seconds: float) -> None:
        """Announce a phase and its expected time, if it is long."""
        if seconds >= _LONG_S:
            self._announced = True
            self._announce(f"{phase}, about {min(seconds, self._most_s):.0f} s")

    def end(self) -> None:
        """Clear the last announcement."""
        if self._announced:
            self._announced = False
            self._announce("")
