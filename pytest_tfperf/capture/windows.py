"""
The windows of a profile: consecutive stretches of one run of the user's steps.

cold (step 0) → warm-up → timed (profiler off) → traced → turns (with other processes) → probe (a step that shows its
graphs). Whoever drives the steps calls `begin` and `end` around each, `turn_over` between epochs, and stops when `done`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.elements import elements_to_keep
from pytest_tfperf.capture.garbage_collector import garbage_held_off
from pytest_tfperf.capture.new_executables import Executables
from pytest_tfperf.capture.observations import Depth, Observations
from pytest_tfperf.capture.phases import Progress
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.sessions import Session, StepMark, fetch_mark, read_session
from pytest_tfperf.compiler.probe import probed
from pytest_tfperf.compiler.step_calls import calls_recorded
from pytest_tfperf.machine.conditions import conditions_noted, is_traced
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.machine.stopwatch import Stopwatch
from pytest_tfperf.recording import Recording
from pytest_tfperf.tf_runtime import fetch, least_block, sync_devices
from pytest_tfperf.trace.events import runs_functions
from pytest_tfperf.turns import Ready, TurnClient
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

_MAX_ROUNDS, _MAX_PROBES = 3, 10
_SHARES = {"warm-up": 0.2, "timed": 0.45, "traced": 0.3}  # of max_seconds, for one round of windows


class Windows:
    """
    The state of one profile while its steps run.

    `settle(trace, steps since the last pause)` says how many steps must pass before the windows are measured again,
    because the input's buffers were still draining, or 0; `announce` is told what takes long, and an empty text at the end;
    `exclusive` keeps others from measuring meanwhile; `turn_client` takes turns with other processes.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        kind: str,
        settle: Callable[[Path, int], int],
        announce: Callable[[str], None],
        exclusive: Exclusive,
        turn_client: TurnClient | None = None,
    ) -> None:
        self.plan, self.kind = plan, kind
        self.done = False
        self.enough = False  # all windows are full that the profile itself needs
        self.watched = False  # whether traces of tf.functions are reported to `function_traced`
        self.n_steps = 0
        self.inputs: Mapping[str, Any] = {"inputs": [], "batch": None}
        self.last_output: Any = None
        self._folder, self._settle, self._turn_client = folder, settle, turn_client
        self._progress, self._exclusive = (
            Progress(announce, plan.max_seconds),
            functools.partial(exclusive, announce),
        )
        self.observations = Observations()
        self._running_calls, self._running_probe = (
            self.observations.calls,
            self.observations.probe,
        )  # of the running session and probe
        self._gaps: list[float] = []
        self._cold_traces = 0
        self._session: Session | None = None
        self._mark: StepMark | None = None
        self._in_step = self._in_fetch = self._epoch_over = False
        self._epoch = self._in_trace = self._last_seen = (
            0  # epochs that have ended; steps that the running session holds; all but turns
        )
        self._most_elements = 0
        self._size = plan.steps_per_call
        self._lap_timer, self._total_timer = (
            Stopwatch(),
            Stopwatch(),
        )  # of a lap, and of all since the first step
        self._executables = Executables(folder)
        self._steps = self._sequence()
        next(self._steps)

    def begin(self, size: int | None = None) -> None:
        """A call begins that holds so many steps; without a word as many as the plan says."""
        self._size = self.plan.steps_per_call if size is None else size
        if self._executables.outside_steps:
            with self._lap_timer.paused():
                self._executables.return_to_steps()
        if self._epoch_over:
            self._start_next_epoch()
        self._in_step = True
        if not self.n_steps:
            self._lap_timer.restart()
        if self._session is not None:
            self._mark = StepMark(self.kind, self.n_steps, self._epoch, self._size)

    @contextmanager
    def fetching(self, from_python: bool) -> Iterator[None]:
        """Around the `next()` of a step."""
        self._in_fetch = True
        try:
            with fetch_mark(from_python) if self._session else nullcontext():
                yield
        finally:
            self._in_fetch = False

    def end(self, output: Any = None) -> None:
        """The step has ended; what has to be done between steps is done now."""
        if self.plan.latency:
            fetch(output)
        self._end_mark()
        self._in_step = False
        self.n_steps += 1
        try:
            next(self._steps)
        except StopIteration:
            self.done = True

    def consumed(self, element: Any) -> None:
        """The element that the running step got."""
        if not self.n_steps:
            self._most_elements = elements_to_keep(element)
        elif (
            self._session is not None and len(self.observations.elements.kept) < self._most_elements
        ):
            self.observations.elements.kept.append(element)

    def abort(self) -> None:
        """The step that began was none: its epoch had no more data."""
        if self._mark is not None:
            self._mark.abort()
        self._running_calls.abort_step()
        self._running_probe.calls.abort_step()
        self._end_mark()
        self._in_step = False
        self.turn_over()

    def turn_over(self) -> None:
        """An epoch has ended; the time until the next step begins is its gap."""
        self._epoch_over = True

    def leave_steps(self) -> None:
        """Until the next step begins, the loop does something else (a validation); what it compiles is not the steps'."""
        if self._session is None and not self._executables.outside_steps and self.n_steps:
            with self._lap_timer.paused():
                self._executables.leave_steps()

    def function_traced(self, name: str, change: str) -> None:
        """TensorFlow has traced a tf.function, because of this change; counted if a step was running."""
        if self._in_step and self.n_steps and not self.enough:
            self.observations.retraces.append((name, self.n_steps, change))
        elif self._in_step and not self.n_steps:
            self._cold_traces += 1

    def close(self, reason: str | None = None) -> None:
        """End the profile wherever it is; with a reason, what its windows have got so far is kept."""
        self._steps.close()
        self._end_mark()
        self._progress.over()
        if reason is not None and not self.enough:
            self.observations.ended = reason
            self._keep_what_there_is()
        if self._session is not None:
            self._session.discard()
            self._session = None

    def recording(
        self, name: str, result: Any, workload: Mapping[str, Any], depth: Depth
    ) -> Recording:
        """What was seen, of a profile that has ended."""
        late = self._executables.late
        return self.observations.recording(
            name,
            workload,
            self.plan.max_seconds,
            depth,
            n_steps=self._last_seen if self.enough else self.n_steps,
            n_epochs=self._epoch,
            compiled=None if late is None else tuple(sorted(late)),
            traced=tuple(self.observations.retraces) if self.watched else None,
            result=result,
        )

    def _keep_what_there_is(self) -> None:
        if not self._executables.watched:
            return
        if self._session is not None and self._in_trace:
            self.observations.trace = self._stop()
            return
        if self._session is not None:
            self._session.discard()
            self._session = None
        self._executables.end()

    def _sequence(self) -> Generator[None]:
        """One `yield` is one step of the user's; the code between two is what happens between two steps."""
        yield from self._cold_window()
        self._total_timer.restart()
        period = yield from self._warm_up_window()
        drain, steps_before = 0, self.n_steps - 1
        for round_left in reversed(range(_MAX_ROUNDS)):
            began = self.n_steps + drain
            waited = yield from self._round(drain, period)
            assert self.observations.trace is not None
            drain = self._settle(
                self.observations.trace, drain or (0 if waited else steps_before)
            )  # buffers fill while it waits
            self.observations.settled = not drain
            period = sum(seconds for seconds, _ in self.observations.blocks) / sum(
                steps for _, steps in self.observations.blocks
            )
            if (
                not drain
                or not round_left
                or not self._room_for(drain + self.n_steps - began, period)
            ):
                break
        self._last_seen, self.enough = self.n_steps, True
        yield from self._turns(period * self.plan.steps_per_call)
        yield from self._probe_step()

    def _round(self, drain: int, period: float) -> Generator[None, None, bool]:
        """The windows that nobody else may measure in, after so many steps in which buffers drain; whether others were waited for."""
        with self._exclusive(self._lap_timer, self._total_timer) as waited:
            self._progress.begins(
                f"waiting {drain} steps for the input buffers to drain", drain * period
            )
            for _ in range(drain):
                yield
            with garbage_held_off() as sweep, conditions_noted(self.observations.conditions):
                yield from self._timed_window(period, sweep)
            self.observations.instrumented |= is_traced()
            yield from self._traced_window()
        return waited

    def _room_for(self, n_steps: int, period: float) -> bool:
        """Whether so many more steps fit into the time and the data."""
        return (
            self._total_timer.elapsed() + 1.5 * n_steps * period <= self.plan.max_seconds
            and self.plan.has(self.n_steps + n_steps)
        )

    def _cold_window(self) -> Generator[None]:
        self._session = Session(self._folder)
        yield
        sync_devices()
        self.observations.first_step_s = self._lap_timer.lap()
        session, self._session = self._session, None
        self.observations.cold = session.stop()
        trace = read_session(self.observations.cold)
        self._executables.begin(trace)
        if runs_functions(trace) and not self._cold_traces:
            self.observations.first_step_s = Unknown(
                "its functions had been traced before, so this was no first step"
            )
        self._lap_timer.restart()

    def _warm_up_window(self) -> Generator[None, None, float]:
        """Gives the period of a step, from the second half of the window."""
        n_steps, half = 0, 0
        while (
            n_steps < self.plan.warmup
            and self._total_timer.elapsed() < self.plan.max_seconds * _SHARES["warm-up"]
        ):
            if n_steps == self.plan.warmup // 2:
                sync_devices()
                self._lap_timer.restart()
                half = n_steps
                self._gaps = []
            yield
            n_steps += 1
        self.observations.notes += self.plan.cut_note("warm-up", n_steps, self.plan.warmup)
        sync_devices()
        return max(self._lap_timer.elapsed(), 0.0) / max(n_steps - half, 1)

    def _timed_window(self, period: float, sweep: Callable[[], None]) -> Generator[None]:
        self._progress.begins(
            "measuring", max(self.plan.timed_steps + self.plan.trace_steps, 1) * period
        )
        target = least_block()
        size = self.plan.block_size(target, period)
        deadline = perf_counter() + self.plan.max_seconds * _SHARES["timed"]
        last = self.n_steps + self.plan.timed_at_most(self.n_steps)
        blocks: list[tuple[float, int]] = []
        single: list[float] = []
        self._gaps = []
        self._lap_timer.restart()
        try:
            while (
                self.n_steps < last
                and self.plan.wants_more(len(single), len(blocks))
                and (perf_counter() < deadline or not blocks)
            ):
                with self._lap_timer.paused():
                    sweep()
                seconds, n_steps, laps = yield from self._block(
                    min(size, last - self.n_steps), deadline
                )
                if (
                    seconds < target / 2
                    and len(laps) == size
                    and self.plan.steps is None
                    and not self.plan.latency
                ):
                    size *= 2  # the warm-up was slower than this: measure with longer blocks
                    continue
                blocks.append((seconds, n_steps))
                single += laps
        finally:
            if blocks and (
                not self.observations.blocks or not self.plan.wants_more(len(single), len(blocks))
            ):
                (
                    self.observations.blocks,
                    self.observations.step_seconds,
                    self.observations.epoch_gaps_s,
                ) = (
                    blocks,
                    single,
                    self._gaps,
                )
        if perf_counter() >= deadline:
            self.observations.notes += self.plan.cut_note(
                "timed", len(single), self.plan.timed_steps
            )

    def _block(
        self, size: int, deadline: float
    ) -> Generator[None, None, tuple[float, int, list[float]]]:
        """
        Calls that are timed together: devices are synchronised once, at their end.

        Gives its seconds, the steps in it, and the seconds of a step in each call.
        """
        laps: list[float] = []
        seconds, n_steps = 0.0, 0
        while len(laps) < size and (perf_counter() < deadline or not laps):
            yield
            lap = self._lap_timer.lap()
            seconds, n_steps = seconds + lap, n_steps + self._size
            laps.append(lap / self._size)
        if not self.plan.latency:
            sync_devices()
        return seconds + self._lap_timer.lap(), n_steps, laps

    def _traced_window(self) -> Generator[None]:
        deadline = perf_counter() + self.plan.max_seconds * _SHARES["traced"]
        self._session, self._in_trace = Session(self._folder), 0
        self.observations.elements.kept.clear()
        with calls_recorded(self._computes) as self._running_calls:
            for n_steps in range(1, self.plan.trace_steps + 1):
                yield
                self._in_trace = n_steps
                self._running_calls.end_step(self._size)
                if perf_counter() > deadline and n_steps >= 2:
                    self.observations.notes += self.plan.cut_note(
                        "traced", n_steps, self.plan.trace_steps
                    )
                    break
        sync_devices()
        self.observations.trace = self._stop()

    def _turns(self, call_s: float) -> Generator[None]:
        if self._turn_client is None:
            return
        most = (
            None if self.plan.available is None else max(0, self.plan.available - self.n_steps - 1)
        )
        yield from run_turns(
            self._turn_client,
            Ready(workload=self.inputs, call_s=call_s, least_s=least_block(), most_calls=most),
            self._turn,
        )

    def _turn(self, size: int) -> Generator[None, None, float]:
        """Seconds of a step in a block."""
        self._lap_timer.restart()
        seconds, n_steps, _ = yield from self._block(size, math.inf)
        return seconds / n_steps

    def _probe_step(self) -> Generator[None]:
        """One more step, if there is one, of the kind that most traced steps are of: what it shows is not worth a failure."""
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

    def _computes(self) -> bool:
        """Whether what Python runs now is the step's own."""
        return self._in_step and not self._in_fetch

    def _start_next_epoch(self) -> None:
        self._epoch_over = False
        self._epoch += 1
        if self._session is None:
            self._gaps.append(self._lap_timer.lap())

    def _stop(self) -> Path:
        """End the traced window: its trace, and what was compiled until then."""
        session, self._session, self.observations.calls = self._session, None, self._running_calls
        assert session is not None
        path = session.stop()
        self._executables.end(read_session(path))
        return path

    def _end_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.end()


def run_turns(
    turn_client: TurnClient, ready: Ready, block: Callable[[int], Generator[None, None, float]]
) -> Generator[None]:
    """
    Blocks for as long as the coordinator asks for them; in between this process stands still.

    Args:
        block: So many calls, of which it gives the seconds of a step.
    """
    turn = turn_client.ready(ready)
    with garbage_held_off() as sweep:
        while turn is not None:
            sweep()
            yield from block(turn.untimed)
            turn = turn_client.ran((yield from block(turn.timed)))
