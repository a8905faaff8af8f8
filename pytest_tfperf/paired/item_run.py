"""Run one profiled test in both versions, and give the working tree's process its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import perf_counter

import pytest

from pytest_tfperf.checks.limits import STRUCTURAL
from pytest_tfperf.child.children import naming_awaited
from pytest_tfperf.child.messages import Ended, Judged, Stopped
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.reports import last_lines, report_from
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.conditions import other_load, read_cpu
from pytest_tfperf.machine.cores import pinned
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.locks import held
from pytest_tfperf.paired.budget import LaterTurns, next_time, pair_estimates, time_when_ready
from pytest_tfperf.paired.coordinator import (
    PairedTest,
    PairedTurns,
    ReadyPair,
    TakeTurns,
    TurnTime,
    run_paired_test,
    run_turns,
)
from pytest_tfperf.paired.processes import ProcessPair, VersionProcesses
from pytest_tfperf.paired.verdicts import Terms, absent_check, undecided, verdicts
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.stats.process_spread import Residuals, for_other_tests, residuals
from pytest_tfperf.stats.sequential import LEAST_TURNS, has_enough_turns
from pytest_tfperf.values import Json, Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRun:
    """One profiled test of a paired run."""

    item: pytest.Item
    """The test."""
    companions: Sequence[pytest.Item]
    """All tests that run in the same process pairs, this one included."""
    processes: VersionProcesses
    """Starts processes of both versions."""
    clustered: bool
    """True with autocluster=True."""
    terms: Terms
    """What the run compares."""
    announce: Callable[[str], None]
    """Shows what runs."""
    note_residuals: Callable[[Residuals], None]
    """Keeps what the test shows of the spread between process pairs."""

    def run(self, pair: ProcessPair, following: str | None) -> str | None:
        """
        Run the test, decide, and let the working tree's process end it.

        Args:
            pair: The first processes, of which the working tree's has collected the test.
            following: Node key of the test that runs next in them.

        Returns:
            Why the test stopped the run, if it did.

        Raises:
            PairedError: If the working tree's process ended, hung or ran the test again.
        """
        try:
            return self._run(pair, following)
        finally:
            self.announce("")

    def _run(self, pair: ProcessPair, following: str | None) -> str | None:
        test = self.processes.key(self.item)
        ref = pair.ref_with(test)
        names = following, following if pair.ref_with(following) else None
        seconds = self.terms.budget_s / self.terms.n_pairs
        # a slow step may have half of the budget; the other half is a second pair's
        time = TurnTime(seconds=seconds, most_s=self.terms.budget_s / 2, least=LEAST_TURNS)
        with _measuring_alone(self.announce):
            taking_turns = self._taking_turns(pair, lambda _: time)
            paired = run_paired_test(pair.tree, ref, test, names, taking_turns)
        if ref is not None and isinstance(paired.ref_profiles, Sequence):
            with suppress(PairedError):  # all that is needed of it is known
                _end_test(ref)
        if paired.tree_profiles is None:
            return paired.stopped
        absent = self._absent(pair, ref, paired)
        later = self._later_turns(paired) if absent is None else {}
        for name, turns in later.items():
            self._note_spread(paired.turns[name], turns)
        checks = verdicts(paired, later, self.terms, absent)
        return _end_test(pair.tree, [check.to_json() for check in checks])

    def _taking_turns(
        self, pair: ProcessPair, time_of: Callable[[str], TurnTime | None]
    ) -> TakeTurns:
        """
        Return what runs turns until further ones would not change the verdict.

        Args:
            pair: The processes.
            time_of: Returns the time for the turns of a profile; None if it takes none.
        """

        def take_turns(ready: ReadyPair) -> PairedTurns | None:
            time = time_of(ready.profile)
            if time is None or self.terms.only == STRUCTURAL:
                return None
            if ready.tree.workload != ready.ref.workload:
                return None
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

        return take_turns

    def _later_turns(self, paired: PairedTest) -> dict[str, LaterTurns]:
        """Return the turns of further process pairs, one pair after the other, up to a decision."""
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
            if not times:
                break
            self.announce(f"undecided so far: process pair {n + 1} of at most {n_pairs}")
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
        """
        Run the test in another process pair, with turns of some profiles.

        Args:
            n: Number of the pair among those of the test, from 0.
            times: The time for the turns of each profile.
            firsts: The turns of each profile in the first process pair.

        Raises:
            PairedError: If a process could not start, ended or hung.
        """
        began = perf_counter()
        found: dict[str, PairedTurns] = {}
        # processes that stay hold the memory of a GPU, which the first pair needs
        stays = n == 1 and not visible_gpus()
        try:
            items = self.companions if stays else [self.item]
            pair = self.processes.pair(self.clustered, items, n)
            if isinstance(pair.ref, Unknown):
                raise PairedError(pair.ref.why)

            def time_of(name: str) -> TurnTime | None:
                if name not in times:
                    return None
                return time_when_ready(times[name], perf_counter() - began, firsts[name])

            take_turns = self._taking_turns(pair, time_of)

            def take_again(ready: ReadyPair) -> PairedTurns | None:
                waited_s = perf_counter() - began
                if (turns := take_turns(ready)) is not None and turns.pairs:
                    found[ready.profile] = replace(turns, waited_s=waited_s)
                return turns

            with naming_awaited(pair.processes), _measuring_alone(self.announce):
                self._repeat(pair, take_again)
        except BaseException:
            self.processes.end_pairs(self.clustered, since=n)
            raise
        if not stays:
            self.processes.end_pairs(self.clustered, since=n)
        return found

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


@contextmanager
def _measuring_alone(announce: Callable[[str], None]) -> Iterator[None]:
    """
    Hold the locks of all devices that both versions have, the CPU and all GPUs, within the context.

    Raises:
        PairedError: If there can be no lock.
    """
    try:
        with held(sorted(["cpu", *(f"gpu-{gpu}" for gpu in visible_gpus())]), announce):
            yield
    except CaptureError as error:
        raise PairedError(str(error)) from error


def _end_test(child: ChildProcess, checks: list[Json] | None = None) -> str | None:
    """
    Let a process end its test, and return why that stopped the run, if it did.

    Args:
        child: The process.
        checks: The checks of the test; None for a process in which it is not judged.

    Raises:
        PairedError: If the process ended, hung or ran the test again.
    """
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
