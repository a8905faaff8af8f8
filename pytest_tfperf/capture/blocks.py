"""Time blocks of steps without garbage collection: the timed window, and turns with others."""

from __future__ import annotations

import gc
import math
import os
import sys
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import get_clock_info, perf_counter, process_time, time_ns

from pytest_tfperf.capture.observations import Observations
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.frameworks.in_use import least_block, synchronise
from pytest_tfperf.machine.clocks import Stopwatch, children_cpu_s
from pytest_tfperf.machine.conditions import core_kept_awake
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.recording import Fetches
from pytest_tfperf.turn import Ready, TurnClient
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

_TIMED_SHARE = 0.45  # of the time limit
_MOST_BLOCKS = 24  # that a window usually has
_TICKS = 100  # of the clock of processor time, in all blocks: its step is then a percent
_TURN_TICKS = 10  # of the children's clock in a turn: its step is then a tenth
# New containers that one block may leave before the collector runs within it after all: 50 to
# 100 MB of small objects.
_MOST_YOUNG = 500_000
# A full collection is due when the objects have grown by a quarter since the last one, which is
# Python's own rule (CPython, gcmodule.c: long_lived_pending > long_lived_total / 4).
_GROWTH = 1.25


@dataclass(frozen=True, slots=True)
class Block:
    """Calls that are timed together."""

    seconds: float
    """Seconds of the block, with one synchronisation of the devices at its end."""
    cpu_seconds: float
    """Processor time of this process in them."""
    n_steps: int
    step_seconds: list[float]
    """Seconds of a step in each call."""
    next_seconds: list[float]
    """Seconds of the `next()` in each call."""
    stood_seconds: list[float]
    """Those of them in which the thread stood still."""
    gap_seconds: list[float]
    """Seconds between two epochs before each call, which `seconds` leave out; 0 within one."""


class BlockTimer:
    """Timer of blocks of steps."""

    def __init__(self, plan: Plan) -> None:
        self.lap_timer = Stopwatch()
        self.steps_per_call = plan.steps_per_call  # of the running call
        self.plan = plan
        self._next_s = self._stood_s = self._gap_s = 0.0  # of the running call
        self._fetches = False  # whether any call fetched
        self._call_ended, self._fetched_ns = 0.0, 0
        self._cpu_ended = self._cpu_gaps = 0.0  # processor time: at a call's end, in the gaps

    def block(self, n_calls: int, deadline: float = math.inf) -> Generator[None, None, Block]:
        """Time a block of `n_calls`, or fewer if the deadline passes; yield in each call."""
        step_seconds: list[float] = []
        next_seconds: list[float] = []
        stood_seconds: list[float] = []
        gap_seconds: list[float] = []
        seconds, n_steps = 0.0, 0
        self._cpu_gaps = 0.0
        self._cpu_ended = cpu_began = process_time()
        while len(step_seconds) < n_calls and (perf_counter() < deadline or not step_seconds):
            self._next_s = self._stood_s = self._gap_s = 0.0
            yield
            lap = self.lap_timer.lap()
            self._call_ended, self._cpu_ended = perf_counter(), process_time()
            seconds, n_steps = seconds + lap, n_steps + self.steps_per_call
            step_seconds.append(lap / self.steps_per_call)
            next_seconds.append(self._next_s)
            stood_seconds.append(self._stood_s)
            gap_seconds.append(self._gap_s)
        if not self.plan.latency:
            synchronise()
        seconds += self.lap_timer.lap()
        cpu_s = process_time() - cpu_began - self._cpu_gaps
        return Block(
            seconds, cpu_s, n_steps, step_seconds, next_seconds, stood_seconds, gap_seconds
        )

    def fetched(self, seconds: float, stood_s: float) -> None:
        """Add the seconds of a `next()`, and those in which it stood still, to the running call."""
        self._next_s += seconds
        self._stood_s += stood_s
        self._fetches, self._fetched_ns = True, time_ns()

    def epoch_began(self) -> None:
        """
        Leave the times since the last call out, since the running one is of the next epoch.

        A validation used the processor then, and fetched its elements.
        """
        self._gap_s = self.lap_timer.lap()
        self._next_s = self._stood_s = 0.0
        self._cpu_gaps += process_time() - self._cpu_ended

    def timed_window(
        self,
        observations: Observations,
        n_before: int,
        period_s: float,
        collect: Callable[[], None],
        epoch: int | None = None,
    ) -> Generator[None]:
        """
        Time blocks until the plan has enough of them, or its time is over; yield in each call.

        Blocks of steps hold whole short epochs, of `epoch` calls, so that none has the first step
        of an epoch by chance.
        """
        plan = self.plan
        n_left, n_timed, n_run = plan.timed_at_most(n_before), 0, 0
        n_slow = 0  # timed blocks of a start so slow that blocks were made longer behind it
        target_s = least_block(period_s, n_left)
        size = max(min(plan.block_size(target_s, period_s, epoch), n_left // plan.least_blocks), 1)
        deadline = perf_counter() + plan.max_seconds * _TIMED_SHARE
        timed = _TimedCalls()
        timed.lengthen(_MOST_BLOCKS * size)
        observations.memory.begin_timed(n_before)
        self.lap_timer.restart()
        self._call_ended = perf_counter()
        try:
            while (
                n_left > 0
                and plan.wants_more(n_timed, len(timed.seconds) - n_slow)
                and (perf_counter() < deadline or not timed.seconds)
            ):
                with self.lap_timer.paused():
                    collect()
                    observations.memory.sample(n_run)
                pause_s = perf_counter() - self._call_ended
                block = yield from self.block(min(size, n_left), deadline)
                n_left -= len(block.step_seconds)
                n_run += block.n_steps
                is_room = 2 * size * plan.least_blocks <= n_left
                if is_room and self._is_too_short(block, size, target_s):
                    size *= 2
                    timed.lengthen(_MOST_BLOCKS * size)
                    n_timed, n_slow = 0, len(timed.seconds)
                    continue
                timed.add(block, pause_s)
                n_timed += len(block.step_seconds)
            observations.memory.sample(n_run)
        finally:
            is_complete = not plan.wants_more(n_timed, len(timed.seconds) - n_slow)
            if timed.seconds and (is_complete or not observations.blocks):
                timed.give(observations, n_run)
                if self._fetches:
                    observations.fetches = timed.fetches(plan.steps_per_call, self._fetched_ns)
        if perf_counter() >= deadline:
            observations.window_notes |= plan.cut_note("timed", n_timed, plan.timed_steps)

    def turn(self, n_calls: int) -> Generator[None, None, Block]:
        """Time a block for a turn."""
        self.lap_timer.restart()
        return (yield from self.block(n_calls))

    def _is_too_short(self, block: Block, size: int, target_s: float) -> bool:
        """Return whether blocks should be longer, since the warm-up was slower than this block."""
        return (
            block.seconds < target_s / 2
            and len(block.step_seconds) == size
            and self.plan.steps is None
            and not self.plan.latency
        )


class _TimedCalls:
    """
    Times of the timed window, in arrays: lists would leave objects, which count as growth.

    They have their length before the first block, since longer ones would count as growth too.
    """

    def __init__(self) -> None:
        self.seconds, self._sizes, self._cpu_seconds = array("d"), array("q"), array("d")
        self._children_s = _children_cpu_s()
        self._n_calls = 0
        self._step_seconds, self._pauses = array("d"), array("d")
        self._next_seconds, self._stood_seconds = array("d"), array("d")
        self._gap_seconds = array("d")
        self._columns = (
            *(self._step_seconds, self._next_seconds, self._stood_seconds),
            *(self._gap_seconds, self._pauses),
        )

    def lengthen(self, n_calls: int) -> None:
        """Lengthen the arrays for as many calls; more lengthen them further."""
        missing = bytes(8 * max(n_calls - len(self._pauses), 0))
        for column in self._columns:
            column.frombytes(missing)

    def add(self, block: Block, pause_s: float) -> None:
        """Add a block, and the seconds of the pause before it."""
        self.seconds.append(block.seconds)
        self._sizes.append(block.n_steps)
        self._cpu_seconds.append(block.cpu_seconds)
        begin, self._n_calls = self._n_calls, self._n_calls + len(block.step_seconds)
        pauses = [pause_s, *[0.0] * (len(block.step_seconds) - 1)]
        for column, values in zip(
            self._columns,
            (
                *(block.step_seconds, block.next_seconds, block.stood_seconds),
                *(block.gap_seconds, pauses),
            ),
            strict=True,
        ):
            column[begin : self._n_calls] = array("d", values)

    def give(self, observations: Observations, n_run: int) -> None:
        """Replace the times of the blocks and their steps; `n_run` steps ran in all."""
        observations.block_cpu_s = self._block_cpu_s(n_run)
        observations.blocks = list(zip(self.seconds, self._sizes, strict=True))
        observations.step_seconds = self._step_seconds[: self._n_calls].tolist()
        gaps = enumerate(self._gap_seconds[: self._n_calls])
        observations.epoch_gaps_s = {call: seconds for call, seconds in gaps if seconds}
        n_gaps = len(observations.epoch_gaps_s)
        observations.epoch_iters_s = observations.iterations.last(n_gaps)
        observations.epoch_work_s = observations.epoch_work.last(n_gaps)

    def _block_cpu_s(self, n_run: int) -> tuple[float, ...] | Unknown:
        """Return the processor time of the blocks, with a share of the children's."""
        now_s = _children_cpu_s()
        if self._children_s is None or now_s is None:
            return Unknown("this system does not tell the processor time of child processes")
        a_step = max(now_s - self._children_s, 0.0) / n_run
        blocks = zip(self._cpu_seconds, self._sizes, strict=True)
        found = tuple(cpu_s + a_step * n_steps for cpu_s, n_steps in blocks)
        tick = get_clock_info("process_time").resolution
        if sum(found) < _TICKS * tick:
            shown = format_quantity(tick, SECONDS)
            return Unknown(
                f"the clock of processor time moves by {shown}, too coarse for these steps"
            )
        return found

    def fetches(self, steps_per_call: int, last_ns: int) -> Fetches:
        """Return the seconds of each call, and the time of the last `next()`."""
        n_calls = self._n_calls
        return Fetches(
            next_s=tuple(self._next_seconds[:n_calls]),
            stood_s=tuple(self._stood_seconds[:n_calls]),
            call_s=tuple(seconds * steps_per_call for seconds in self._step_seconds[:n_calls]),
            pause_s=tuple(self._pauses[:n_calls]),
            last_ns=last_ns,
        )


def _children_cpu_s(but: int | None = None) -> float | None:
    """Return the processor time so far of children that live or have ended, None if unknown."""
    living, ended = children_cpu_s(but=but), os.times()
    return None if living is None else living + ended.children_user + ended.children_system


def mean_period_s(observations: Observations) -> float:
    """Return the mean seconds of a step in the timed blocks."""
    seconds = sum(seconds for seconds, _ in observations.blocks)
    return seconds / sum(n_steps for _, n_steps in observations.blocks)


def run_turns(
    turn_client: TurnClient, ready: Ready, block: Callable[[int], Generator[None, None, Block]]
) -> Generator[None]:
    """Run turns as long as the coordinator asks for them; this process stands still in between."""
    turn = turn_client.ready(ready)
    with garbage_held_off() as collect, core_kept_awake() as idle_task:
        before_s = _children_cpu_s(but=idle_task)
        while turn is not None:
            collect()
            untimed = yield from block(turn.untimed)
            timed = yield from block(turn.timed)
            # once a turn, at its end: reading takes a millisecond, which nothing times there
            now_s = _children_cpu_s(but=idle_task)
            cpu_s = _with_children(timed, untimed.n_steps, before_s, now_s)
            before_s = now_s
            turn = turn_client.ran(timed.seconds / timed.n_steps, cpu_s)


def _with_children(
    timed: Block, n_untimed: int, before_s: float | None, now_s: float | None
) -> float | None:
    """
    Return the processor time of a step in a turn, with the children's in all steps of the turn.

    It is None where the system does not tell it, or too coarsely for so short a turn.
    """
    if before_s is None or now_s is None or timed.cpu_seconds <= 0:
        return None
    children_s = max(now_s - before_s, 0.0) / (n_untimed + timed.n_steps) * timed.n_steps
    cpu_s = timed.cpu_seconds + children_s
    if children_s and cpu_s < _TURN_TICKS / os.sysconf("SC_CLK_TCK"):
        return None
    return cpu_s / timed.n_steps


@contextmanager
def garbage_held_off() -> Iterator[Callable[[], None]]:
    """
    Hold off Python's garbage collector within the context, unless a block would fill the memory.

    The result is a function to call between blocks. It collects what Python would have collected
    by then. A full collection takes a tenth of a second, in which input buffers fill, so it runs
    only if the memory needs it, and not at the beginning.

    Only the threshold changes. The user's gc.enable(), gc.disable() and gc.freeze() keep their
    meaning, also within the context. A disabled collector stays disabled, and a threshold that the
    user sets within the context stays.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not before[0]:
        yield lambda: None
        return
    held = (max(_MOST_YOUNG, before[0]), *before[1:])
    gc.set_threshold(*held)
    try:
        yield _collector(before[0])
    finally:
        if gc.get_threshold() == held:
            gc.set_threshold(*before)


def _collector(young: int) -> Callable[[], None]:
    """Return a function that collects garbage where Python would have, after `young` containers."""
    most = _GROWTH * sys.getallocatedblocks()

    def collect() -> None:
        nonlocal most
        if not gc.isenabled() or gc.get_count()[0] <= young:
            return
        gc.collect(1)
        # Walks all memory of Python, for 0.2 ms in which an input pipeline runs on untimed.
        if sys.getallocatedblocks() > most:
            gc.collect()
            most = _GROWTH * sys.getallocatedblocks()

    return collect
