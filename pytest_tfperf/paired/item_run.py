"""Run one profiled test in both versions, and give the working tree's process its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_tfperf.checks.limits import STRUCTURAL
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.reports import last_lines, report_from
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.conditions import read_cpu
from pytest_tfperf.machine.cores import pinned
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.interference import other_load
from pytest_tfperf.machine.locks import held
from pytest_tfperf.paired.coordinator import (
    PairedTest,
    PairedTurns,
    ReadyPair,
    TakeTurns,
    run_paired_test,
    run_turns,
)
from pytest_tfperf.paired.processes import ProcessPair, VersionProcesses, naming_awaited
from pytest_tfperf.paired.verdicts import Terms, absent_check, suspected, verdicts
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.stats.sequential_test import INTERIM_SIZES, PAIR_SHARE, interim_analysis
from pytest_tfperf.values import Unknown

_ANOTHER_REF = "a ref on which it runs, or stored values (--tfperf-baseline)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRun:
    """One profiled test of a paired run."""

    item: pytest.Item
    """The test."""
    processes: VersionProcesses
    """Starts processes of both versions."""
    clustered: bool
    """True with autocluster=True."""
    terms: Terms
    """What the run compares."""
    budget_s: float
    """Seconds of turns of a profile."""
    announce: Callable[[str], None]
    """Shows what runs."""

    def run(self, pair: ProcessPair, following: str | None) -> str | None:
        """
        Run the test, decide, and let the working tree's process end it.

        Args:
            pair: The processes, of which the working tree's has collected the test.
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
        with _measuring_alone(self.announce):
            paired = run_paired_test(pair.tree, ref, test, names, self._taking_turns(pair))
        if ref is not None and isinstance(paired.ref_profiles, list):
            with suppress(PairedError):  # all that is needed of it is known
                ref.send(checks=None)
                _check_ended(ref, ref.next_event())
        if paired.tree_profiles is None:
            return paired.stopped
        again = self._run_again(suspected(paired, self.terms))
        checks = verdicts(paired, again, self.terms, self._absent(pair, ref, paired))
        pair.tree.send(checks=[check.to_json() for check in checks])
        ended = pair.tree.next_event()
        _check_ended(pair.tree, ended)
        return str(ended["stopped"]) if "stopped" in ended else None

    def _taking_turns(self, pair: ProcessPair) -> TakeTurns:
        """Return what runs turns until an analysis decides, or the budget of one pair is over."""

        def take_turns(ready: ReadyPair) -> PairedTurns | None:
            if self.terms.only == STRUCTURAL or ready.tree.workload != ready.ref.workload:
                return None
            assert not isinstance(pair.ref, Unknown)
            seconds = self.budget_s * PAIR_SHARE  # the other half is a second pair's
            self.announce(f"taking turns with {self.terms.ref}, at most {seconds:.0f} s")
            pids = [process.pid for process in pair.processes]
            cores = self.processes.cores
            before = read_cpu(cores=cores, processes=pids)
            with pinned(self.processes.coordinator_cores):
                turns = run_turns(pair.tree, pair.ref, ready, seconds, self._is_enough(ready))
            load = other_load(before, read_cpu(cores=cores, processes=pids))
            return replace(turns, other_load=load)

        return take_turns

    def _is_enough(self, ready: ReadyPair) -> Callable[[Sequence[float]], bool]:
        rule = self.terms.rule(ready.tolerance)

        def is_enough(logs: Sequence[float]) -> bool:
            return len(logs) >= INTERIM_SIZES[-1] or (
                len(logs) in INTERIM_SIZES and interim_analysis(logs, rule).verdict is not None
            )

        return is_enough

    def _run_again(self, names: Sequence[str]) -> dict[str, PairedTurns | Unknown]:
        """Return the turns of some profiles in a fresh pair of processes."""
        if not names:
            return {}
        self.announce("possible regression: re-measuring in a second pair of processes")
        found: dict[str, PairedTurns | Unknown] = {}
        try:
            pair = self.processes.fresh_pair(self.clustered, [self.item])
            if isinstance(pair.ref, Unknown):
                pair.interrupt()
                return dict.fromkeys(names, pair.ref)
            take_turns = self._taking_turns(pair)

            def take_again(ready: ReadyPair) -> PairedTurns | None:
                turns = take_turns(ready) if ready.profile in names else None
                if turns is not None:
                    found[ready.profile] = turns
                return turns

            try:
                with naming_awaited(pair.processes), _measuring_alone(self.announce):
                    test = self.processes.key(self.item)
                    run_paired_test(pair.tree, pair.ref_with(test), test, (None, None), take_again)
            finally:
                pair.interrupt()
        except PairedError as error:
            return {name: Unknown(str(error)) for name in names} | found
        return found

    def _absent(
        self, pair: ProcessPair, ref: ChildProcess | None, paired: PairedTest
    ) -> Check | None:
        """Return the check of all profiles where the ref has nothing to compare with."""
        name = self.terms.ref
        if isinstance(pair.ref, Unknown):
            return _unknown(f"on {name} no test can run: {pair.ref.why}", _ANOTHER_REF)
        if ref is None:
            errors = pair.ref.errors_of(self.processes.key(self.item))
            if errors:
                return _unknown(f"on {name} the test cannot be collected:\n{errors}", _ANOTHER_REF)
            return _new(f"the test is on the working tree alone: {name} has none of this name")
        if paired.void:
            return _unknown(f"the comparison would be void: {'; '.join(paired.void)}")
        if isinstance(paired.ref_profiles, Unknown):
            why = paired.ref_profiles.why
            return _unknown(f"on {name} the test did not end: {why}", _ANOTHER_REF)
        if paired.ref_profiles is None:
            return _outcome([report_from(self.item, report) for report in ref.reports], name)
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


def _check_ended(child: ChildProcess, event: Mapping[str, Any]) -> None:
    """Raise PairedError unless the process finishes its test after the verdict."""
    if not event.keys() & {"ended", "stopped"}:
        child.kill()
        raise PairedError(
            f"{child.label} runs the test again after its verdict, "
            "as a plugin for flaky tests does: run without it"
        )


def _outcome(reports: list[pytest.TestReport], ref: str) -> Check:
    """Return the check of a test that did not come to its end on the ref."""
    bad = [report for report in reports if report.failed]
    if bad:
        lines = last_lines(bad[0].longreprtext)
        return _unknown(f"on {ref} the test fails:\n{lines}", _ANOTHER_REF)
    if any(report.skipped for report in reports):
        return _new(f"the test runs on the working tree alone: on {ref} it is skipped")
    return _new(f"the test is profiled on the working tree alone: on {ref} it profiles nothing")


def _unknown(text: str, advice: str = "") -> Check:
    return absent_check(Verdict.UNKNOWN, text, advice)


def _new(text: str) -> Check:
    return absent_check(Verdict.NEW, text)
