"""
`--tfperf-against REF`: every profiled test runs in two processes, on the working tree and on the ref's files; this one referees.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from pytest_tfperf.child.process import Lost, Player
from pytest_tfperf.child.reports import (
    failed_report,
    last_lines,
    log_reports,
    record_warning,
    report_from,
)
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.conditions import other_load, read_cpu
from pytest_tfperf.machine.cores import pinned, ranges
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.locks import held
from pytest_tfperf.markers import is_profiled, is_whole
from pytest_tfperf.paired.coordinator import Match, Opening, Turns, run_match, take_turns
from pytest_tfperf.paired.processes import Pair, Sides, awaited_named
from pytest_tfperf.paired.verdicts import Terms, absent_check, suspected, verdicts
from pytest_tfperf.plugin.progress import announcer
from pytest_tfperf.results import Check, Verdict
from pytest_tfperf.stats.sequential_test import (
    INTERIM_SIZES,
    PAIR_SHARE,
    PINNED_PROCESS_SD,
    UNPINNED_PROCESS_SD,
    interim_analysis,
)
from pytest_tfperf.text import and_more

NAME = "tfperf-referee"
_NAMED = 5  # tests in a line


class PairedRun:
    """The plugin of the referee of all profiled tests; `is_clustered` tells those with autocluster=True."""

    def __init__(
        self,
        config: pytest.Config,
        ref: str,
        budget_s: float,
        only: str | None,
        is_clustered: Callable[[pytest.Item], bool],
        on_terminal: bool,
    ) -> None:
        self._config, self._ref, self._budget_s, self._only = config, ref, budget_s, only
        self._is_clustered, self._on_terminal = is_clustered, on_terminal
        self._items: dict[bool, list[pytest.Item]] = {}
        self._following: dict[pytest.Item, pytest.Item] = {}
        self._sides: Sides | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Write the ref's files, or say why that cannot be."""
        option = self._config.option
        if option.collectonly or getattr(option, "setuponly", False) or option.tfperf_disable:
            return
        if not hasattr(signal, "SIGSTOP"):
            raise pytest.UsageError(
                "--tfperf-against stops each side while the other has its turn, and this system cannot stop processes"
            )
        try:
            self._sides = Sides(self._config, self._ref)
        except PairedError as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_report_header(self) -> str | None:
        """Against what, and on which cores."""
        sides = self._sides
        if sides is None:
            return None
        same = ", which the working tree's tracked files equal" if sides.tree.same else ""
        where = f"on core{'s' * (len(sides.cores) > 1)} {ranges(sides.cores)}, this process on {ranges(sides.referee_cores)}"
        if not sides.cores:
            where = (
                "on any core, since there are none to pin them to: two processes then differ more"
            )
        return (
            f"tfperf: against {self._ref} ({sides.tree.commit[:12]}{same}); both sides run {where}"
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know which tests run in pairs, and which the same processes run next: fixtures that it uses too stay set up for it."""
        items = [item for item in session.items if is_profiled(item)]
        for clustered in (False, True):
            self._items[clustered] = [
                item for item in items if self._is_clustered(item) == clustered
            ]
            self._following |= dict(itertools.pairwise(self._items[clustered]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a profiled test on both sides."""
        if self._sides is None or not is_profiled(item):
            return None
        log_reports(item, nextitem, self._reports(item, self._sides))
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the profiled tests that are on the ref alone, as far as their files are here and the run leaves out none."""
        gone = (
            self._sides.only_on_ref() if self._sides is not None and is_whole(self._config) else []
        )
        if gone:
            names = and_more(gone, _NAMED)
            terminalreporter.write_line(
                f"tfperf: NEW: on {self._ref} alone, so not compared: {names}", yellow=True
            )

    def pytest_unconfigure(self) -> None:
        """End both sides, and remove the ref's files."""
        if self._sides is not None:
            self._sides.close()

    def _reports(self, item: pytest.Item, sides: Sides) -> Iterator[pytest.TestReport]:
        """The reports of a test from the working tree's side."""
        pair = self._pair(item, sides)
        if isinstance(pair, str):
            yield failed_report(item, pair, [])
            return
        try:
            with awaited_named(pair.players):
                stopped, died = self._run(item, sides, pair), None
        except Lost as error:
            stopped, died = None, f"{error}{_ALONE}"
        except PairedError as error:
            stopped, died = None, str(error)
        except pytest.fail.Exception as error:
            sides.interrupt()
            stopped, died = None, str(error)
        except BaseException:
            sides.interrupt()
            raise
        for warning in pair.tree.warnings:
            record_warning(item, warning)
        reports = [report_from(item, report) for report in pair.tree.reports]
        yield from reports
        if stopped:
            pytest.exit(stopped)
        if died:
            yield failed_report(item, died, reports)

    def _pair(self, item: pytest.Item, sides: Sides) -> Pair | str:
        """The sides that have a test, or why there are none."""
        clustered = self._is_clustered(item)
        try:
            pair = sides.pair(clustered, self._items[clustered])
            _see_collected(pair.tree, sides.name(item))
        except (
            PairedError,
            pytest.fail.Exception,
        ) as error:  # the latter is what plugins for time limits raise
            return str(error)
        return pair

    def _run(self, item: pytest.Item, sides: Sides, pair: Pair) -> str | None:
        """Run a test on both sides and tell the working tree's what is said of it; gives why the run is to stop, if it is."""
        test, following = (
            sides.name(item),
            sides.name(self._following[item]) if item in self._following else None,
        )
        ref = pair.ref if pair.ref is not None and test in pair.ref.collected else None
        names = (
            following,
            following if pair.ref is not None and following in pair.ref.collected else None,
        )
        announce, terms = announcer(item, self._on_terminal), self._terms(sides)
        try:
            with _measuring(announce):
                match = run_match(
                    pair.tree,
                    ref,
                    test,
                    names,
                    lambda opening: self._play(sides, pair, opening, terms, announce),
                )
            if match.ref_profiles is not None and ref is not None:
                with suppress(PairedError):  # all that is wanted of it is there
                    ref.say(checks=None)
                    _see_ended(ref, ref.next_event())
            if match.tree_profiles is None:
                return match.stopped
            again = self._again(item, sides, suspected(match, terms), terms, announce)
            checks = verdicts(match, again, terms, self._absent(pair, ref, match, item, test))
            pair.tree.say(checks=[check.to_json() for check in checks])
            ended = pair.tree.next_event()
            _see_ended(pair.tree, ended)
            return str(ended["stopped"]) if "stopped" in ended else None
        finally:
            announce("")

    def _terms(self, sides: Sides) -> Terms:
        process_sd = PINNED_PROCESS_SD if sides.cores else UNPINNED_PROCESS_SD
        return Terms(
            ref=self._ref,
            n_tests=max(1, sum(map(len, self._items.values()))),
            process_sd=process_sd,
            only=self._only,
        )

    def _play(
        self,
        sides: Sides,
        pair: Pair,
        opening: Opening,
        terms: Terms,
        announce: Callable[[str], None],
    ) -> Turns | None:
        """Turns until a look decides, or half of the budget is over: the other half is a second pair's."""
        if self._only == "structural" or opening.tree.workload != opening.ref.workload:
            return None
        assert pair.ref is not None
        rule = terms.rule(opening.tolerance)

        def is_enough(logs: Sequence[float]) -> bool:
            return len(logs) >= INTERIM_SIZES[-1] or (
                len(logs) in INTERIM_SIZES and interim_analysis(logs, rule).verdict is not None
            )

        seconds = self._budget_s * PAIR_SHARE
        announce(f"taking turns with {self._ref}, at most {seconds:.0f} s")
        pids = [player.pid for player in pair.players]
        before = read_cpu(cores=sides.cores, processes=pids)
        with pinned(sides.referee_cores):
            turns = take_turns(pair.tree, pair.ref, opening, seconds, is_enough)
        return replace(
            turns, others=other_load(before, read_cpu(cores=sides.cores, processes=pids))
        )

    def _again(
        self,
        item: pytest.Item,
        sides: Sides,
        names: list[str],
        terms: Terms,
        announce: Callable[[str], None],
    ) -> dict[str, Turns]:
        """The turns of a fresh pair of processes, of the profiles with these names."""
        if not names:
            return {}
        announce("possible regression: re-measuring in a second pair of processes")
        found: dict[str, Turns] = {}
        try:
            pair = sides.fresh_pair(self._is_clustered(item), [item])
            try:
                play = _only(
                    names, lambda opening: self._play(sides, pair, opening, terms, announce), found
                )
                with awaited_named(pair.players), _measuring(announce):
                    run_match(pair.tree, pair.ref, sides.name(item), (None, None), play)
            finally:
                pair.interrupt()
        except PairedError as error:
            found |= {name: Turns(lost=str(error)) for name in names if name not in found}
        return found

    def _absent(
        self, pair: Pair, ref: Player | None, match: Match, item: pytest.Item, test: str
    ) -> Check | None:
        """What there is to say where the ref has nothing to compare with."""
        if pair.ref is None:
            return absent_check(
                Verdict.UNKNOWN, f"on {self._ref} no test can run: {pair.why}", _ANOTHER
            )
        if ref is None:
            errors = pair.ref.errors_of(test)
            if errors:
                return absent_check(
                    Verdict.UNKNOWN,
                    f"on {self._ref} the test cannot be collected:\n{errors}",
                    _ANOTHER,
                )
            return absent_check(
                Verdict.NEW,
                f"the test is on the working tree alone: {self._ref} has none of this name",
            )
        if match.void:
            return absent_check(
                Verdict.UNKNOWN, "the comparison would be void: " + "; ".join(match.void)
            )
        if match.lost is not None:
            return absent_check(
                Verdict.UNKNOWN, f"on {self._ref} the test did not end: {match.lost}", _ANOTHER
            )
        return (
            _outcome([report_from(item, report) for report in ref.reports], self._ref)
            if match.ref_profiles is None
            else None
        )


@contextmanager
def _measuring(announce: Callable[[str], None]) -> Iterator[None]:
    """
    Within the context nothing else of this user measures on the devices that the sides have: the CPU and all GPUs.

    Raises:
        PairedError: If there can be no lock.
    """
    try:
        with held(sorted(["cpu", *(f"gpu-{gpu}" for gpu in visible_gpus())]), announce):
            yield
    except CaptureError as error:
        raise PairedError(str(error)) from error


def _see_collected(player: Player, test: str) -> None:
    """
    See that a process has a test.

    Raises:
        PairedError: If it does not, with what could not be collected.
    """
    if test not in player.collected:
        raise PairedError(
            f"{player.label} has no test of this name:\n{player.errors_of(test) or _NOT_AGAIN}"
        )


def _only(
    names: list[str], play: Callable[[Opening], Turns | None], found: dict[str, Turns]
) -> Callable[[Opening], Turns | None]:
    """Plays the profiles with these names, and keeps what is found."""

    def playing(opening: Opening) -> Turns | None:
        turns = play(opening) if opening.profile in names else None
        if turns is not None:
            found[opening.profile] = turns
        return turns

    return playing


def _see_ended(player: Player, event: Mapping[str, Any]) -> None:
    """Raises: PairedError if a side does not end its test when that has its verdict."""
    if not event.keys() & {"ended", "stopped"}:
        player.kill()
        raise PairedError(
            f"{player.label} runs the test again after its verdict, as a plugin for flaky tests does: run without it"
        )


def _outcome(reports: list[pytest.TestReport], ref: str) -> Check | None:
    """What is to be said where the test on the ref did not come to its end."""
    bad = [report for report in reports if report.failed]
    if bad:
        return absent_check(
            Verdict.UNKNOWN,
            f"on {ref} the test fails:\n{last_lines(bad[0].longreprtext)}",
            _ANOTHER,
        )
    skipped = [report for report in reports if report.skipped]
    if skipped:
        return absent_check(
            Verdict.NEW, f"the test runs on the working tree alone: on {ref} it is skipped"
        )
    return absent_check(
        Verdict.NEW, f"the test is profiled on the working tree alone: on {ref} it profiles nothing"
    )


_ANOTHER = "a ref on which it runs, or stored values (--tfperf-baseline)"
_ALONE = "\n  try: the test without --tfperf-against, to see whether it comes to its end there"
_NOT_AGAIN = "  collected a second time, the tests have other names; see that parameters and their ids are the same each time"
