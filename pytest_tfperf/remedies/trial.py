"""Try remedies: each on the same step and data, compared with the unchanged step, in turns."""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any

from pytest_tfperf.advice.changes import changes_in
from pytest_tfperf.capture.blocks import garbage_held_off
from pytest_tfperf.errors import CaptureError, TfperfError
from pytest_tfperf.frameworks.in_use import has_accelerators, start_devices, synchronise
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.machine.locks import Exclusive, measuring_alone
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.remedies import inner as of_inner
from pytest_tfperf.remedies import input as of_input
from pytest_tfperf.remedies import jax as of_jax
from pytest_tfperf.remedies import keras as of_keras
from pytest_tfperf.remedies import step as of_step
from pytest_tfperf.remedies.python_work import said
from pytest_tfperf.remedies.remedy import Call, DoesNotApply, Remedy
from pytest_tfperf.remedies.results import FROZEN, Remedies, Tried
from pytest_tfperf.remedies.state import kept_state, references, seeds_of, variables_of
from pytest_tfperf.remedies.turns import Turns
from pytest_tfperf.report.remedies import RANDOM, SAME, UNCOMPARED, WITHIN, is_fair
from pytest_tfperf.text import elide
from pytest_tfperf.variants.comparison import NEEDED_ROUNDS, Comparison
from pytest_tfperf.variants.outputs import (
    Leaves,
    Tolerance,
    check_outputs,
    distance,
    leaves_of,
)
from pytest_tfperf.variants.turns import compare_rounds

__tracebackhide__ = True

REMEDIES: tuple[Remedy, ...] = (
    *of_input.REMEDIES,
    *of_step.REMEDIES,
    *of_jax.REMEDIES,
    *of_inner.REMEDIES,
    *of_keras.REMEDIES,
)
UNCHANGED = "unchanged"
_LIKELY = 3  # remedies that time is kept for while others are tried
_COMPARED = 3  # first steps whose outputs are compared: a lost update shows in the second
_SEEDS = 5  # with which the unchanged step runs, if random generators are part of its state
_AS_RANDOM = 3.0  # times the largest of their distances: 0.3 % of single normal numbers are further
_MOST_STATE = 2**26  # bytes of variables that are compared with them
_WIDTH = 200  # characters of an error
ROUNDS = NEEDED_ROUNDS + 2
"""Rounds that time is kept for: those of an interval, and some since turns differ in length."""
_AGREES = 1.5  # times that the unchanged step in turns may differ from its profile
LATE = "no time was left"
"""Why a remedy was not tried that there was no time for."""


@dataclass(slots=True)
class _Candidate:
    """A remedy that works on the call, and its turns."""

    remedy: Remedy
    call: Call
    turns: Turns
    turn_s: float
    outputs: str
    dropped: str
    name: str
    write: str


def try_remedies(
    call: Call,
    seconds: float,
    announce: Callable[[str], None] = lambda _: None,
    exclusive: Exclusive = measuring_alone,
    remedies: Sequence[Remedy] = REMEDIES,
) -> Remedies:
    """
    Try the remedies that a profile suggests, singly and then the best of each kind together.

    All of it is in this process, so what has begun to run is not stopped.

    Args:
        call: The step, its data and its profile.
        seconds: Time for all of it.
        announce: Shows what runs.
        exclusive: Keeps other processes from measuring meanwhile.
        remedies: The remedies.

    Raises:
        CaptureError: If the data cannot begin again, or a strategy distributes them.
    """
    refuse(call)
    try:
        with exclusive(announce), trial_of(call, seconds, announce) as trial:
            trial.begin()
            trial.run(suggested(call, remedies))
            return trial.found()
    finally:
        announce("")


def suggested(call: Call, remedies: Iterable[Remedy] = REMEDIES) -> list[Remedy]:
    """Return what a profile suggests: changes that its advice names, then what saves most."""

    def order(remedy: Remedy) -> tuple[bool, float, bool]:
        own = changes_in(remedy.name)
        named = [one for one in call.profile.advice if own & changes_in(one.what)]
        wins = [one.win_s for one in named if one.win_s is not None]
        saves_s = max(wins, default=remedy.saving_s(call) or 0.0)
        return not named, -saves_s, remedy.is_bound

    return sorted((one for one in remedies if one.applies(call)), key=order)


@contextmanager
def trial_of(
    call: Call,
    seconds: float,
    announce: Callable[[str], None] = lambda _: None,
    runs: Callable[[str, Remedies], None] = lambda *_: None,
) -> Iterator[Trial]:
    """Make a trial of a step, whose state is put back at the end."""
    start_devices()
    with garbage_held_off() as sweep, kept_state(call.step, call.restore) as restore:
        yield Trial(call, seconds, announce, runs, restore, sweep)


def _turns_of(call: Call) -> Turns:
    return Turns(call) if call.keras is None else of_keras.KerasTurns(call)


def refuse(call: Call) -> None:
    """
    Refuse what no remedy can be tried on.

    Raises:
        CaptureError: If the data cannot begin again, or a strategy distributes step or data.
    """
    tf = loaded_tensorflow()
    data = call.data
    if data is not None and iter(data) is data:
        raise CaptureError(
            "remedies need data that can begin again, such as a tf.data.Dataset or a list"
        )
    if tf is None:
        return
    strategy = getattr(call.keras and call.keras.model, "distribute_strategy", None)
    is_distributed = strategy is not None and strategy is not tf.distribute.get_strategy()
    if (
        is_distributed
        or isinstance(data, tf.distribute.DistributedDataset)
        or any(isinstance(one, tf.distribute.Strategy) for one in _referred(call.step))
    ):
        raise CaptureError("remedies cannot be tried under a tf.distribute strategy")


def _referred(step: Any) -> list[Any]:
    """Return what the function of a step refers to by a name of its own."""
    function = inspect.unwrap(getattr(step, "python_function", step))
    is_function = isinstance(function, types.FunctionType)
    return [value for _, value, _ in references(function)] if is_function else []


def _n_elements(shape: Any) -> int:
    """Return the numbers in a variable, 0 if TensorFlow does not know; JAX has tuples."""
    return (shape.num_elements() or 0) if hasattr(shape, "num_elements") else math.prod(shape)


def distances(expected: Leaves, found: Leaves) -> dict[str, float]:
    """Return how far outputs of numbers are apart in all steps, by their paths behind the step."""
    far: dict[str, float] = {}
    for path, leaf in expected.items():
        name = _behind_step(path)
        far[name] = math.hypot(far.get(name, 0.0), distance(leaf, found.get(path)))
    return {path: one for path, one in far.items() if math.isfinite(one)}


def _behind_step(path: str) -> str:
    return path.partition(": ")[2] or path


def compared(
    expected: Leaves, found: Leaves, spread: Mapping[str, float] = MappingProxyType({})
) -> str:
    """
    Return how outputs compare with those of the unchanged step, in a word or a sentence.

    Args:
        expected: Those of the unchanged step.
        found: The others.
        spread: How far those of the unchanged step are apart with other random numbers.
    """
    why = ""
    for word, tolerance in ((SAME, Tolerance(0.0, 0.0)), (WITHIN, Tolerance())):
        try:
            notes = check_outputs({UNCHANGED: expected, "it": found}, tolerance)
        except AssertionError as error:
            why = str(error).splitlines()[1].strip()
            continue
        return UNCOMPARED if any("no values" in note for note in notes) else word
    if not spread or expected.keys() != found.keys():
        return why
    far = distances(expected, found)
    near = {path for path in far if far[path] <= _AS_RANDOM * spread.get(path, 0.0)}
    rest = [path for path in expected if _behind_step(path) not in near]
    why = compared({p: expected[p] for p in rest}, {p: found[p] for p in rest})
    return RANDOM if keeps(why) else why


def keeps(outputs: str) -> bool:
    """Return whether outputs are the same, or may be for all that is known."""
    return outputs in (SAME, WITHIN, UNCOMPARED)


class Trial:
    """The remedies of one call: those that work, those that do not, and what they gave."""

    def __init__(
        self,
        call: Call,
        seconds: float,
        announce: Callable[[str], None],
        runs: Callable[[str, Remedies], None],
        restore: Callable[[], None],
        sweep: Callable[[], object],
    ) -> None:
        self._call, self._announce, self._runs = call, announce, runs
        self._restore, self._sweep = restore, sweep
        self._began = perf_counter()
        self._deadline = self._began + seconds
        self._measured: list[Tried] = []
        self._others: list[Tried] = []
        self._notes: list[str] = []
        self._unchanged_s: float | None = None
        self.unchanged = _turns_of(call)
        """Turns of the unchanged step."""
        self.turn_s = 0.0
        """Seconds of one of them."""
        self.expected: Leaves = {}
        """Outputs of its first steps."""
        self.is_random = False
        """True if they are others the second time."""
        self.spread: dict[str, float] = {}
        """How far they are apart where its random generators begin elsewhere; see `distances`."""
        self._work: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Run the unchanged step."""
        self._runs(UNCHANGED, self.found())
        self.expected = self._first(self.unchanged)
        self.is_random = not keeps(compared(self.expected, self._first(self.unchanged)))
        for shift in range(_SEEDS):
            self.spread |= self._other_seeds(1 + shift)
        self.turn_s = self.unchanged.warm_up()
        self._work = self._call.seen["work"] = self.unchanged.python_work()
        self._restore()

    def _other_seeds(self, shift: int) -> dict[str, float]:
        """Return the spread of outputs as far as it is known with other random numbers."""
        seeds = seeds_of(self.unchanged.step)
        for one in seeds:
            one.assign(one + shift)
        found = distances(self.expected, self._first(self.unchanged)) if seeds else {}
        return {path: max(far, self.spread.get(path, 0.0)) for path, far in found.items()}

    def turn(self) -> float:
        """Run a turn of the unchanged step, and return the seconds of a step in it."""
        self._sweep()
        return self.unchanged.turn()

    def run(self, remedies: Sequence[Remedy]) -> None:
        """Try remedies, and then the best of each kind together."""
        found: list[_Candidate] = []
        for n, remedy in enumerate(remedies):
            likely = sorted(found, key=self._unlikely)[:_LIKELY]
            needed_s = self._needed_s(likely) if found else 0.0
            if n and perf_counter() + needed_s > self._deadline:
                self._leave(remedy.name, LATE)
                continue
            found += self._candidate(remedy, self._call)
        self._measure(found)
        together = self._together(found)
        if together and perf_counter() + self._needed_s([together]) < self._deadline:
            self._measure([together])
        elif together:
            self._leave(together.name, LATE)

    def _needed_s(self, found: Iterable[_Candidate]) -> float:
        """Return the seconds that an interval of each takes."""
        return ROUNDS * (self.turn_s + sum(one.turn_s for one in found))

    def _unlikely(self, one: _Candidate) -> tuple[bool, bool, float]:
        """Return the order in which remedies keep their turns: those first that seem to help."""
        is_slower = one.turns.step_s > self.unchanged.step_s
        fair = is_fair(one.outputs, one.remedy.is_bound, one.dropped)
        return is_slower, not fair, one.turns.step_s

    def found(self) -> Remedies:
        """Return what they gave."""
        return Remedies(
            tried=(*fastest_first(self._measured), *self._others),
            unchanged_s=self._unchanged_s,
            seconds=perf_counter() - self._began,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _candidate(
        self, remedy: Remedy, call: Call, name: str = "", write: str = ""
    ) -> list[_Candidate]:
        """Return a remedy that works, alone in a list; note why one does not."""
        name = name or remedy.name
        self._announce(f"trying {name}")
        self._runs(name, self.found())
        try:
            changed = remedy.apply(call)
            write = write or remedy.write(call)
            turns = _turns_of(changed)
            outputs = self._outputs(remedy, turns)
            turn_s = turns.warm_up()
            is_of_step = self._work and remedy.kind == "step"
            dropped = said(self._work - turns.python_work()) if is_of_step else ""
        except DoesNotApply:
            return []
        except Exception as error:  # of the user's step under a change that it does not bear
            self._call.seen.setdefault("failed", set()).add(name)
            self._leave(name, f"could not be tried: {sentence(error)}")
            return []
        finally:
            self._restore()
        return [_Candidate(remedy, changed, turns, turn_s, outputs, dropped, name, write)]

    def _outputs(self, remedy: Remedy, turns: Turns) -> str:
        """Return how the outputs of a remedy compare; random ones hide what it changes."""
        if remedy.is_bound:
            return UNCOMPARED
        first = self._first(turns)
        found = self._compared(first)
        if self.is_random and compared(first, self._first(turns)) == SAME:
            return FROZEN
        return remedy.computes_differently or found if found == RANDOM else found

    def _first(self, turns: Turns) -> Leaves:
        """Return the outputs of the first steps, and the variables after them; put state back."""
        try:
            outputs = turns.first_outputs(_COMPARED)
            synchronise()
            found = {
                f"step {index}: {path}": leaf
                for index, output in enumerate(outputs, 1)
                for path, leaf in leaves_of(output).items()
            }
            variables = variables_of(turns.step)
            sizes = [_n_elements(one.shape) for one in variables if hasattr(one, "value")]
            if 8 * sum(sizes) <= _MOST_STATE:
                for index, one in enumerate(variables):
                    found |= {f"variable {index}": leaf for leaf in leaves_of(one).values()}
            return found
        finally:
            self._restore()

    def _compared(self, found: Leaves) -> str:
        """Return how outputs compare with those of the unchanged step."""
        return RANDOM if self.is_random else compared(self.expected, found, self.spread)

    def _measure(self, found: Sequence[_Candidate]) -> None:
        """Let the unchanged step and remedies take turns, as many of them as there is time for."""
        left_s = self._deadline - perf_counter()
        kept = sorted(found, key=self._unlikely)
        while len(kept) > 1 and self._needed_s(kept) > left_s:
            self._leave(kept.pop().name, "no time was left to measure")
        if not kept:
            return
        self._announce(f"comparing {len(kept)} remedies, {max(left_s, 1):.0f} s at most")
        players = {UNCHANGED: self.unchanged.turn, **{one.name: one.turns.turn for one in kept}}
        try:
            rounds, notes = compare_rounds(
                {name: partial(self._turn, name, turn) for name, turn in players.items()},
                max(left_s, 1.0),
                perf_counter(),
                self._sweep,
            )
        finally:
            self._restore()
        comparison = Comparison(turns=rounds)
        self._unchanged_s = self._unchanged_s or comparison.step_time(UNCHANGED)
        self._notes += [*without_those_of_comparisons(notes), *self._doubt()]
        for one in kept:
            share = None if has_accelerators() else one.turns.input_share
            self._measured.append(
                Tried(
                    remedy=one.name,
                    speedup=comparison.speedup(one.name),
                    step_time=comparison.step_time(one.name),
                    input_share=share,
                    outputs=one.outputs,
                    dropped=one.dropped,
                    is_bound=one.remedy.is_bound,
                    write=one.write,
                )
            )

    def _turn(self, name: str, turn: Callable[[], float]) -> float:
        self._runs(name, self.found())
        return turn()

    def _doubt(self) -> list[str]:
        """Return a note if the unchanged step in turns is another one than in its profile."""
        before, now = self._call.number("step_time"), self._unchanged_s
        if not before or not now or 1 / _AGREES < now / before < _AGREES:
            return []
        shown = [format_quantity(one, SECONDS) for one in (now, before)]
        return [f"the unchanged step takes {shown[0]} in turns, and {shown[1]} in its profile"]

    def _together(self, found: Sequence[_Candidate]) -> _Candidate | None:
        """Return the best remedy of the input and that of the step together, if both help."""
        best: dict[str, _Candidate] = {}
        helping = fastest_first(one for one in self._measured if one.helps)
        for one in helping:
            own = next(candidate for candidate in found if candidate.name == one.remedy)
            best.setdefault(own.remedy.kind, own)
        if len(best) < 2:
            return None
        first, second = best["input"], best["step"]
        name, write = f"{first.name} and {second.name}", f"{first.write}; {second.write}"
        both = self._candidate(second.remedy, replace(first.call), name, write)
        return both[0] if both else None

    def _leave(self, name: str, why: str) -> None:
        self._others.append(Tried(remedy=name, why=why))


def fastest_first(measured: Iterable[Tried]) -> list[Tried]:
    """Return remedies in the order of their speed-ups."""
    return sorted(measured, key=lambda one: -(one.speedup.ratio if one.speedup else 0.0))


def without_those_of_comparisons(notes: Iterable[str]) -> list[str]:
    """Return notes on rounds, without those on the order of players and `tfperf_max_seconds`."""
    return [note for note in notes if not re.search("^order|tfperf_max_seconds", note)]


def sentence(error: Exception) -> str:
    """Return an error in one line: its first, or the last one of what a framework introduces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    is_introduced = len(lines) > 1 and lines[0].endswith(":")  # "in user code:"
    text = elide(lines[-1 if is_introduced else 0] if lines else "", _WIDTH)
    return text if isinstance(error, TfperfError) and text else f"{type(error).__name__}: {text}"
