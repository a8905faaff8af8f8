"""
Steps with data that take turns in this process.

Each turn begins an iterator of its own. So no pipeline works while another step is timed, and no
buffer is full that the timed steps would empty.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.loop import calling
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import UnfinishedCalls, least_block, synchronise
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.remedies.input import is_dataset
from pytest_tfperf.remedies.python_work import work_of
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.state import with_copies

_TIMED_S = 0.2  # as in turns/rounds.py: several of the bursts that a pipeline delivers in
_UNTIMED_S = 0.05  # refills what the turns of others have emptied
_MOST_STEPS = 10_000  # of a turn
_GROWTH = 8  # times more steps from turn to turn: the first ones may find a full buffer
WATCHED = 8  # steps whose calls in Python are looked at


class Turns:
    """Turns of one step."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._chance = random.SystemRandom()
        self._calling: Callable[[Any], Any] | None = None
        self.timed, self.untimed = 1, 1
        self.waited_s = self.ran_s = 0.0
        """Seconds that timed steps waited for their data, and of all of them."""
        self.step_s = 0.0
        """Seconds of a step when it was warmed up."""

    @property
    def input_share(self) -> float | None:
        """Share of a step that waits for its data; None without data."""
        return None if self._call.data is None or not self.ran_s else self.waited_s / self.ran_s

    def first_outputs(self, n: int) -> list[Any]:
        """Run the first steps, and return their outputs, as they were when each step ended."""
        outputs = []
        with self._call.during():
            iterator = self._begin()
            for _ in range(n):
                iterator, element, _ = self._fetch(iterator)
                outputs.append(with_copies(self._run(element)))
        return outputs

    def python_work(self) -> frozenset[str]:
        """Return what Python does in some steps behind the warm-up (see `python_work`)."""
        with self._call.during():
            iterator, elements = self._begin(), []
            for _ in range(WATCHED):
                iterator, element, _ = self._fetch(iterator)
                elements.append(element)
            return work_of(self._call.step, lambda: [self._run(one) for one in elements])

    def warm_up(self) -> float:
        """Run steps until it is known how many a turn has; return the seconds of a turn."""
        self.untimed = 2
        self.turn()  # traces and compiles
        step_s, turn_s = self._turn_and_all()
        for _ in range(6):
            least_s = least_block(step_s) if self._call.data is None else _TIMED_S
            size = min(max(math.ceil(least_s / max(step_s, 1e-6)), self._in_flight), _MOST_STEPS)
            size = min(size, _GROWTH * self.timed)
            if size <= self.timed:
                break
            self.timed = size
            self.untimed = max(math.ceil(_UNTIMED_S / max(step_s, 1e-6)), self._in_flight // 2, 1)
            self.untimed = min(self.untimed, size)
            step_s, turn_s = self._turn_and_all()
        self.waited_s = self.ran_s = 0.0
        self.step_s = step_s
        return turn_s

    def _turn_and_all(self) -> tuple[float, float]:
        """Run a turn; return the seconds of a step, and of all of it with the start of the data."""
        began = perf_counter()
        return self.turn(), perf_counter() - began

    @property
    def step(self) -> Callable[..., Any]:
        """The step that takes turns."""
        return self._call.step

    def turn(self) -> float:
        """Run a turn, and return the seconds of a step in it."""
        with self._call.during():
            return self._turn()

    def _turn(self) -> float:
        iterator = self._begin()
        for _ in range(self.untimed + self._chance.randrange(self.untimed)):
            iterator, element, _ = self._fetch(iterator)
            self._run(element)
        synchronise()
        calls = UnfinishedCalls()
        waited_s = seconds = 0.0
        began = perf_counter()
        for _ in range(self.timed):
            before = perf_counter()
            iterator, element, epoch_s = self._fetch(iterator)
            waited_s += perf_counter() - before - epoch_s
            seconds -= epoch_s
            self._run(element)
            calls.ended()
        synchronise()
        seconds += perf_counter() - began
        self.waited_s += waited_s
        self.ran_s += seconds
        return seconds / self.timed

    @property
    def _in_flight(self) -> int:
        """Elements that a pipeline makes at the same time, twice; a turn is to hold as many."""
        return 2 * len(usable_cores()) if is_dataset(self._call.data) else 1

    def _begin(self) -> Iterator[Any] | None:
        data = self._call.data
        if data is None:
            return None
        iterator = iter(data)
        if iterator is data:
            raise CaptureError("the data cannot begin again: pass data that can be iterated again")
        return iterator

    def _fetch(self, iterator: Iterator[Any] | None) -> tuple[Iterator[Any] | None, Any, float]:
        """Return the iterator, its next element, and the seconds between two epochs."""
        if iterator is None:
            return None, None, 0.0
        try:
            return iterator, next(iterator), 0.0
        except StopIteration:
            began = perf_counter()
        iterator = self._begin()
        epoch_s = perf_counter() - began
        return iterator, self._next(iterator), epoch_s

    def _next(self, iterator: Iterator[Any] | None) -> Any:
        if iterator is None:
            return None
        try:
            return next(iterator)
        except StopIteration:
            raise CaptureError("the data have too few elements") from None

    def _run(self, element: Any) -> Any:
        call = self._call
        if call.data is None:
            return call.step()
        if self._calling is None:
            self._calling = calling(call.step, element, call.unpack)
        return self._calling(element)
