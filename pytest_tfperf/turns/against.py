"""Run one profiled test in both versions, and give the working tree's process its checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import pytest

from pytest_tfperf.checks.limits import STRUCTURAL
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.conditions import other_load, read_cpu
from pytest_tfperf.machine.cores import pinned
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.locks import held
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.stats.process_spread import Residuals, for_other_tests, residuals
from pytest_tfperf.stats.sequential import LEAST_TURNS, PAIR_S, has_enough_turns
from pytest_tfperf.turns.children import naming_awaited
from pytest_tfperf.turns.messages import Ended, Judged, Stopped
from pytest_tfperf.turns.paired_test import (
    LaterTurns,
    PairedTest,
    PairedTurns,
    ReadyPair,
    TakeTurns,
    TurnTime,
    next_time,
    pair_estimates,
    run_paired_test,
    run_turns,
    time_when_ready,
)
from pytest_tfperf.turns.pairs import ProcessPair, VersionProcesses
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.reports import last_lines, report_from
from pytest_tfperf.turns.verdicts import Terms, absent_check, undecided, verdicts
from pytest_tfperf.values import Unknown


class RunBudget:
    """
    The seconds of a run for the starts of processes, turns, and tests that run again for them.

    `unreached` are the tests that had none, by node key.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = self._left_s = math.inf if seconds is None else seconds
        self._since: float | None = None
        self.unreached: dict[str, None] = {}

    @property
    def left_s(self) -> float:
        """The seconds that are left now."""
        return self._left_s - (0.0 if self._since is None else perf_counter() - self._since)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Let the seconds within the context count."""
        self._since = perf_counter()
        try:
            yield
        finally:
            self._left_s, self._since = self.left_s, None

    @property
    def option(self) -> str:
        """The option as the user gave it."""
        return f"--tfperf-budget-total {self._seconds:g}"

    def of_test(self, budget_s: float, kept_s: float) -> tuple[float, str]:
        """Return the seconds for a test, 0 if too few, and why they are less than its budget."""
        left_s = self.left_s - kept_s
        if left_s >= budget_s:
            return budget_s, ""
        if left_s < PAIR_S:
            return 0.0, f"{self.option} left no time for it"
        return left_s, f"{self.option} left {format_quantity(left_s, SECONDS)} for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRun:
    """One profiled test of a paired run."""

    item: pytest.Item
    companions: Sequence[pytest.Item]
    """All tests that run in the same process pairs, this one included."""
    processes: VersionProcesses
    clustered: bool
    terms: Terms
    budget: RunBudget
    kept_s: float
    """Seconds of the run that are kept for other tests."""
    announce: Callable[[str], None]
    note_residuals: Callable[[Residuals], None]
    waits_s: list[float]
    """Receives the seconds of each wait for measurements of other runs."""

    def run(self, pair: ProcessPair, following: str | None) -> str | None:
        """Run and judge the test; return why it stopped the run, if it did. Raises: PairedError."""
        try:
            return self._run(pair, following)
        finally:
            self.announce("")

    def _run(self, pair: ProcessPair, following: str | None) -> str | None:
        self.processes.make_room()
        test = self.processes.key(self.item)
        ref = pair.ref_with(test)
        names = following, following if pair.ref_with(following) else None
        with self._measuring_alone():
            began = perf_counter()
            paired = run_paired_test(pair.tree, ref, test, names, partial(self._first_turns, pair))
            played_s = sum(turns.spent_s for turns in paired.turns.values())
            ran_s = perf_counter() - began - played_s
        if ref is not None and isinstance(paired.ref_profiles, tuple):
            with suppress(PairedError):  # all that is needed of it is known
                _end_test(ref)
        if paired.tree_profiles is None:
            return paired.stopped
        absent = self._absent(pair, ref, paired)
        with self.budget.spending():
            later = self._later_turns(paired, ran_s) if absent is None else {}
        for name, turns in later.items():
            self._note_spread(paired.turns[name], turns)
        terms = self.terms
        if self._left_s <= 0 and not terms.cut:
            terms = replace(terms, cut=f"{self.budget.option} was used up meanwhile")
        checks = verdicts(paired, later, terms, absent)
        return _end_test(pair.tree, tuple(checks))

    def _first_turns(self, pair: ProcessPair, ready: ReadyPair) -> PairedTurns | None:
        """Run the turns of the first process pair."""
        if not self._wants_turns(ready):
            return None
        if not self.terms.budget_s or self._left_s <= 0:
            self.budget.unreached[self.processes.key(self.item)] = None
            return None
        seconds = self.terms.budget_s / self.terms.n_pairs
        # a slow step may have half of the budget; the other half is a second pair's
        time = TurnTime(seconds=seconds, most_s=self.terms.budget_s / 2, least=LEAST_TURNS)
        with self.budget.spending():
            return self._turns(pair, ready, time)

    @property
    def _left_s(self) -> float:
        """The seconds of the run that are left for this test."""
        return self.budget.left_s - self.kept_s

    def _wants_turns(self, ready: ReadyPair) -> bool:
        return self.terms.only != STRUCTURAL and ready.tree.workload == ready.ref.workload

    def _turns(self, pair: ProcessPair, ready: ReadyPair, time: TurnTime) -> PairedTurns | None:
        """Run turns until further ones would not change the verdict, within the run's seconds."""
        left_s = self._left_s
        if left_s <= 0:
            return None
        time = replace(time, seconds=min(time.seconds, left_s), most_s=min(time.most_s, left_s))
        assert not isinstance(pair.ref, Unknown)
        rule = self.terms.rule(ready.tolerance)
        self.announce(f"taking turns with {self.terms.ref}, about {time.seconds:.0f} s")
        groups = [process.pid for process in pair.processes]
        cores = self.processes.cores
        before = read_cpu(cores=cores, groups=groups)
        with pinned(self.processes.coordinator_cores):
            turns = run_turns(
                pair.tree, pair.ref, ready, time, lambda logs: has_enough_turns(logs, rule)
            )
        load = other_load(before, read_cpu(cores=cores, groups=groups))
        return replace(turns, other_load=load)

    def _later_turns(self, paired: PairedTest, ran_s: float) -> dict[str, LaterTurns]:
        """Return the turns of further process pairs, one after the other, up to a decision."""
        later = {name: LaterTurns() for name, turns in paired.turns.items() if turns.pairs}
        budget_s, n_pairs = self.terms.budget_s, self.terms.n_pairs
        for n in range(1, n_pairs):
            times = {
                name: time
                for name, decision in undecided(paired, later, self.terms).items()
                if (
                    time := next_time(
                        paired.turns[name], later[name], budget_s, n_pairs, decision.is_suspected
                    )
                )
            }
            if not times or self._left_s <= 0:
                break
            about_s = ran_s + max(time.seconds for time in times.values())
            if not self.processes.is_started(self.clustered, n):
                about_s += self.processes.start_s
            which = f"process pair {n + 1} of at most {n_pairs}"
            self.announce(f"undecided so far: {which}, about {about_s:.0f} s")
            try:
                found = self._turns_of_pair(n, times, paired.turns)
            except PairedError as error:
                why = f"process pair {n + 1} could not run: {error}"
                return later | {name: replace(later[name], why=why) for name in times}
            for name, turns in found.items():
                later[name] = replace(later[name], turns=(*later[name].turns, turns))
            if not found:  # its test has not come to these profiles
                break
        return later

    def _note_spread(self, first: PairedTurns, later: LaterTurns) -> None:
        """Keep the residuals of a profile, unless other processes used the cores meanwhile."""
        if all(turns.other_load is None for turns in (first, *later.turns)):
            pairs = pair_estimates(first, later)
            constant = self.terms.constant
            self.note_residuals(for_other_tests(residuals(pairs, constant), constant))

    def _turns_of_pair(
        self, n: int, times: Mapping[str, TurnTime], firsts: Mapping[str, PairedTurns]
    ) -> dict[str, PairedTurns]:
        """Run the test in process pair `n`, from 0, with turns in `times`. Raises: PairedError."""
        began = perf_counter()
        found: dict[str, PairedTurns] = {}
        # processes that stay hold the memory of a GPU, which the first pair needs
        alone = bool(visible_gpus())
        try:
            items = [self.item] if alone else self.companions
            pair = self.processes.pair(self.clustered, items, n)
            if isinstance(pair.ref, Unknown):
                raise PairedError(pair.ref.why)

            def take_turns(ready: ReadyPair) -> PairedTurns | None:
                name, waited_s = ready.profile, perf_counter() - began
                if name not in times or not self._wants_turns(ready):
                    return None
                time = time_when_ready(times[name], waited_s, firsts[name])
                if (turns := self._turns(pair, ready, time)) is not None and turns.pairs:
                    found[name] = replace(turns, waited_s=waited_s)
                return turns

            with naming_awaited(pair.processes), self._measuring_alone():
                self._repeat(pair, take_turns)
        except BaseException:
            self.processes.end_pair(self.clustered, n)
            raise
        if alone:
            self.processes.end_pair(self.clustered, n)
        return found

    @contextmanager
    def _measuring_alone(self) -> Iterator[None]:
        """Hold the locks of the CPU and of all GPUs, which both have. Raises: PairedError."""
        names = sorted(["cpu", *(f"gpu-{gpu}" for gpu in visible_gpus())])
        try:
            with held(names, self.announce, waits_s=self.waits_s):
                yield
        except CaptureError as error:
            raise PairedError(str(error)) from error

    def _repeat(self, pair: ProcessPair, take_turns: TakeTurns) -> None:
        """Run the test in a process pair that is not judged, up to its end."""
        test = self.processes.key(self.item)
        ref = pair.ref_with(test)
        for process in pair.processes:
            process.require(test)
        assert ref is not None
        paired = run_paired_test(pair.tree, ref, test, (None, None), take_turns)
        if isinstance(paired.ref_profiles, Unknown):
            raise PairedError(paired.ref_profiles.why)
        for process, profiles in ((pair.tree, paired.tree_profiles), (ref, paired.ref_profiles)):
            if profiles is not None:
                _end_test(process)

    def _absent(
        self, pair: ProcessPair, ref: ChildProcess | None, paired: PairedTest
    ) -> Check | None:
        """Return the check of all profiles where the ref has nothing to compare with."""
        name, here, otherwise = self.terms.ref, self.terms.here, self.terms.otherwise
        if isinstance(pair.ref, Unknown):
            return _unknown(f"on {name} no test can run: {pair.ref.why}", otherwise)
        if ref is None:
            errors = pair.ref.errors_of(self.processes.key(self.item))
            if errors:
                return _unknown(f"on {name} the test cannot be collected:\n{errors}", otherwise)
            return _new(f"the test is on {here} alone: {name} has none of this name")
        if paired.void:
            return _unknown(f"the comparison would be void: {'; '.join(paired.void)}")
        if isinstance(paired.ref_profiles, Unknown):
            why = paired.ref_profiles.why
            return _unknown(f"on {name} the test did not end: {why}", otherwise)
        if paired.ref_profiles is None:
            reports = [report_from(self.item, report) for report in ref.reports]
            return _outcome(reports, self.terms)
        return None


def _end_test(child: ChildProcess, checks: tuple[Check, ...] | None = None) -> str | None:
    """Let a process end its test; return why that stopped the run, or None. Raises: PairedError."""
    child.send(Judged(checks=checks))
    event = child.next_event()
    if not isinstance(event, (Ended, Stopped)):
        child.kill()
        raise PairedError(
            f"{child.label} runs the test again after its verdict, "
            "as a plugin for flaky tests does: run without it"
        )
    return event.why if isinstance(event, Stopped) else None


def _outcome(reports: list[pytest.TestReport], terms: Terms) -> Check:
    """Return the check of a test that did not come to its end on the ref, from its reports."""
    ref, here = terms.ref, terms.here
    bad = [report for report in reports if report.failed]
    if bad:
        lines = last_lines(bad[0].longreprtext)
        return _unknown(f"on {ref} the test fails:\n{lines}", terms.otherwise)
    if any(report.skipped for report in reports):
        return _new(f"the test runs on {here} alone: on {ref} it is skipped")
    return _new(f"the test is profiled on {here} alone: on {ref} it profiles nothing")


def _unknown(text: str, advice: str = "") -> Check:
    return absent_check(Verdict.UNKNOWN, text, advice)


def _new(text: str) -> Check:
    return absent_check(Verdict.NEW, text)
