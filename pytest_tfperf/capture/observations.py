"""The observations of a profile's windows."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tfperf.capture.input_data import Elements, batches_seen, stages_of
from pytest_tfperf.capture.sessions import Traces
from pytest_tfperf.compiler.step_calls import Calls, Probe
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.machine.conditions import Interference
from pytest_tfperf.machine.memory import MemoryUse
from pytest_tfperf.recording import (
    UNSEEN,
    Batches,
    BetweenEpochs,
    Fetches,
    PipelineStage,
    PythonCalls,
    StackTime,
)
from pytest_tfperf.values import Unknown

_EPOCHS = 1 << 10  # that have room beforehand


class Durations:
    """
    Seconds in an array that has its length beforehand.

    A list would hold an object for each, and these would count as growth of the memory.
    """

    def __init__(self, at_first: int = 1 << 16) -> None:
        self._seconds = array("d", bytes(8 * at_first))
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, seconds: float) -> None:
        """Add a duration."""
        if self._n == len(self._seconds):
            self._seconds.frombytes(bytes(8 * self._n))
        self._seconds[self._n] = seconds
        self._n += 1

    def last(self, n: int) -> list[float]:
        """Return the last n durations, or all if there are fewer."""
        return self._seconds[max(self._n - n, 0) : self._n].tolist()


class Epochs:
    """
    The epochs of a profile.

    `n_ended` is their number, and `length` the steps of one: of the last, before its end as the
    data tell it: 0 if Keras does not know it, or None.
    """

    def __init__(self) -> None:
        self.n_ended = 0
        self.length: int | None = None
        self._is_over = False
        self._n_before = 0  # steps before the running epoch

    def end(self) -> None:
        """End the running epoch."""
        self._is_over = True

    def begin_step(self, n_steps: int) -> bool:
        """Begin a step after `n_steps`; return whether it is the first one after an epoch."""
        if not self._is_over:
            return False
        self._is_over = False
        self.n_ended += 1
        self.length, self._n_before = n_steps - self._n_before, n_steps
        return True


class EpochWork:
    """Seconds of what runs between epochs."""

    def __init__(self) -> None:
        self._seconds: dict[BetweenEpochs, Durations] = {}
        self._n_epochs = 0

    def add(self, seconds: Mapping[BetweenEpochs, float]) -> None:
        """Add the seconds of one epoch's end."""
        for what in seconds.keys() - self._seconds.keys():
            self._seconds[what] = Durations(_EPOCHS)
            for _ in range(self._n_epochs):
                self._seconds[what].append(0.0)
        for what, durations in self._seconds.items():
            durations.append(seconds.get(what, 0.0))
        self._n_epochs += 1

    def last(self, n: int) -> dict[BetweenEpochs, tuple[float, ...]]:
        """Return the seconds of the last n epochs."""
        return {what: tuple(durations.last(n)) for what, durations in self._seconds.items()}


@dataclass(slots=True)
class Observations:
    """Observations of one profile; `Recording` explains the fields of the same names."""

    first_step_s: float | Unknown | None = None
    blocks: list[tuple[float, int]] = field(default_factory=list)
    block_cpu_s: tuple[float, ...] | Unknown = UNSEEN
    step_seconds: list[float] = field(default_factory=list)
    fetches: Fetches | None = None
    epoch_gaps_s: dict[int, float] = field(default_factory=dict)
    """Seconds between two epochs, by the index of the timed call that begins the second."""
    iterations: Durations = field(default_factory=Durations)
    """Seconds of freeing an epoch's iterator and of the next `iter()` on the data, so far."""
    epoch_iters_s: list[float] = field(default_factory=list)
    epoch_work: EpochWork = field(default_factory=EpochWork)
    """What ran between all epochs so far."""
    epoch_work_s: dict[BetweenEpochs, tuple[float, ...]] = field(default_factory=dict)
    retraces: list[FunctionTrace] = field(default_factory=list)
    """Traces after the first step."""
    made_elsewhere: list[str] = field(default_factory=list)
    other_threads: bool = False
    cold: Traces = field(default_factory=dict)
    traces: Traces = field(default_factory=dict)
    """Traces of the traced window."""
    calls: Calls = field(default_factory=lambda: Calls(why="nothing was traced"))
    """Functions called in the steps of the trace."""
    probe: Probe = field(default_factory=Probe)
    """Record of the probe's step."""
    elements: Elements = field(default_factory=Elements)
    """Elements consumed in the steps of the trace."""
    python_calls: PythonCalls | Unknown = UNSEEN
    first_stacks: tuple[StackTime, ...] = ()
    stacks: tuple[StackTime, ...] = ()
    memory: MemoryUse = field(default_factory=MemoryUse)
    settled: bool = True
    instrumented: bool = False
    first_step_instrumented: bool = False
    ended: str | None = None
    window_notes: dict[str, str] = field(default_factory=dict)
    interference: Interference = field(default_factory=Interference)

    def pipeline(self) -> tuple[PipelineStage, ...] | Unknown:
        """Return the stages of the data, unless no step ran."""
        ran = self.first_step_s is not None or self.blocks or self.traces
        return stages_of(self.elements.data, self.elements.sampled) if ran else UNSEEN

    def batches(self) -> Batches | Unknown:
        """Return the batches of the elements, or why there are none."""
        elements = self.elements
        if elements.why:
            return Unknown(elements.why)
        return batches_seen(elements.kept, elements.data, elements.sampled)
