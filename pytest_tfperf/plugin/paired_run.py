"""
`--tfperf-against`: profiled tests run in two processes, on the working tree and on the ref's files.

With `--tfperf-against-python` one of them is another Python's.

This process is the coordinator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pytest_tfperf.checks.limits import STRUCTURAL
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import format_cores
from pytest_tfperf.markers import is_profiled, is_whole
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.progress import announcer
from pytest_tfperf.plugin.workers import n_workers
from pytest_tfperf.report.run_text import describe_other_python
from pytest_tfperf.stats.process_spread import Residuals, constant_spread
from pytest_tfperf.text import and_more, plural
from pytest_tfperf.turns.against import ItemRun, RunBudget
from pytest_tfperf.turns.children import naming_awaited
from pytest_tfperf.turns.pairs import ProcessPair, VersionProcesses
from pytest_tfperf.turns.pytest_child import ProcessLost, can_start_processes
from pytest_tfperf.turns.reports import failed_report, log_reports, received
from pytest_tfperf.turns.spread_store import store_residuals, stored_residuals
from pytest_tfperf.turns.verdicts import Terms
from pytest_tfperf.turns.versions import Versions
from pytest_tfperf.values import Unknown

_NAMED = 5  # tests that exist on the ref alone
_ALONE = "\n  try: the test without --tfperf-against, to see whether it comes to its end there"


class PairedRun:
    """The plugin of the coordinator of profiled tests; raises pytest.UsageError under workers."""

    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        on_terminal: bool,
        is_clustered: Callable[[pytest.Item], bool],
    ) -> None:
        if n_workers(config):
            raise pytest.UsageError(
                "--tfperf-against takes turns on one machine: run it without -n (pytest -n 0)"
            )
        self._config, self._options, self._is_clustered = config, options, is_clustered
        self._on_terminal = on_terminal
        self._items: dict[bool, list[pytest.Item]] = {}
        self._following: dict[pytest.Item, pytest.Item] = {}
        self._processes: VersionProcesses | None = None
        self._stored = self._residuals = Residuals()
        self._waits_s: list[float] = []
        self._budget = RunBudget(options.budget_total_s)
        self._first_served: set[pytest.Item] = set()
        """Tests still to come whose marker has max_regression."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Write the ref's files and ask another Python, or end the run with what is wrong."""
        option = self._config.option
        if option.collectonly or getattr(option, "setuponly", False) or option.tfperf_disable:
            return
        if not can_start_processes():
            raise pytest.UsageError(
                "--tfperf-against stops each version while the other has its turn, "
                "and this system cannot stop processes"
            )
        try:
            self._processes = VersionProcesses(
                self._config,
                self._options.against,
                self._options.against_python,
                starts_ahead=self._options.only != STRUCTURAL,
            )
        except PairedError as error:
            raise pytest.UsageError(str(error)) from error
        self._stored = stored_residuals(self._processes.cores)

    def pytest_report_header(self) -> str | None:
        """Name the other version, the packages that differ, and the cores."""
        processes = self._processes
        if processes is None:
            return None
        where = "any core, since there are none to pin them to: two processes then differ more"
        if processes.cores:
            own = format_cores(processes.coordinator_cores)
            where = f"{format_cores(processes.cores)}, this process on {own}"
        named = _described(processes.versions, self._options.against)
        return f"tfperf: against {named}; both versions run on {where}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the tests that run in pairs, and the next of each, whose shared fixtures stay."""
        items = [item for item in session.items if is_profiled(item)]
        self._first_served = set(filter(_gates_times, items))
        for clustered in (False, True):
            self._items[clustered] = [
                item for item in items if self._is_clustered(item) == clustered
            ]
            self._following |= dict(itertools.pairwise(self._items[clustered]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a profiled test in both versions."""
        if self._processes is None or not is_profiled(item):
            return None
        log_reports(item, nextitem, self._reports(item, self._processes))
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name tests that had no turns, and those on the ref alone, if the run leaves out none."""
        if unreached := self._budget.unreached:
            tests = plural(len(unreached), "test")
            terminalreporter.write_line(
                f"tfperf: {self._budget.option} left no time for {tests}, so not compared: "
                f"{and_more(list(unreached), _NAMED)}",
                yellow=True,
            )
        if self._processes is None or not is_whole(self._config):
            return
        gone = self._processes.only_on_ref()
        if gone:
            terminalreporter.write_line(
                f"tfperf: NEW: on {self._processes.versions.name} alone, so not compared: "
                f"{and_more(gone, _NAMED)}",
                yellow=True,
            )

    def pytest_unconfigure(self) -> None:
        """End all processes, remove the ref's files, and store how much processes differed."""
        if self._processes is not None:
            self._processes.close()
            store_residuals(self._residuals, self._processes.cores)

    def _note_residuals(self, found: Residuals) -> None:
        self._residuals += found

    def _reports(
        self, item: pytest.Item, processes: VersionProcesses
    ) -> Iterator[pytest.TestReport]:
        """Yield the reports of a test from the working tree's process."""
        announce = announcer(item, self._on_terminal)
        pair = self._pair(item, processes, announce)
        if isinstance(pair, Unknown):
            yield failed_report(item, pair.why, [])
            return
        stopped, died = self._run(item, processes, pair, announce)
        reports = received(item, pair.tree)
        for report in reports:
            report.tfperf_waited_s = sum(self._waits_s)
            self._waits_s.clear()
            _name_other_python(report, processes.versions)
        yield from reports
        if stopped:
            pytest.exit(stopped)
        if died:
            yield failed_report(item, died, reports)

    def _pair(
        self, item: pytest.Item, processes: VersionProcesses, announce: Callable[[str], None]
    ) -> ProcessPair | Unknown:
        """Return the processes for a test, if that of the working tree has collected it."""
        clustered = self._is_clustered(item)
        if not processes.is_started(clustered, 0):
            announce("starting processes of both versions")
        try:
            with self._budget.spending():
                pair = processes.pair(clustered, self._items[clustered])
            pair.tree.require(processes.key(item))
        # plugins for time limits raise the last
        except (PairedError, pytest.fail.Exception) as error:
            announce("")
            return Unknown(str(error))
        return pair

    def _run(
        self,
        item: pytest.Item,
        processes: VersionProcesses,
        pair: ProcessPair,
        announce: Callable[[str], None],
    ) -> tuple[str | None, str]:
        """Run a test; return why it stopped the run, and why its process could not go on."""
        following = self._following.get(item)
        self._first_served.discard(item)
        budget_s = self._options.budget_s
        kept_s = 0.0 if _gates_times(item) else len(self._first_served) * budget_s
        budget_s, cut = self._budget.of_test(budget_s, kept_s)
        run = ItemRun(
            item=item,
            processes=processes,
            companions=self._items[self._is_clustered(item)],
            clustered=self._is_clustered(item),
            terms=replace(self._terms(processes), budget_s=budget_s, cut=cut),
            budget=self._budget,
            kept_s=kept_s,
            announce=announce,
            note_residuals=self._note_residuals,
            waits_s=self._waits_s,
        )
        try:
            with naming_awaited(pair.processes):
                return run.run(pair, processes.key(following) if following else None), ""
        except ProcessLost as error:
            return None, f"{error}{_ALONE}"
        except PairedError as error:
            return None, str(error)
        except pytest.fail.Exception as error:
            processes.interrupt()
            return None, str(error)
        except BaseException:
            processes.interrupt()
            raise

    def _terms(self, processes: VersionProcesses) -> Terms:
        return Terms(
            ref=processes.versions.name,
            here=processes.versions.here,
            otherwise=processes.versions.otherwise,
            is_same_platform=processes.versions.pythons is None,
            n_tests=max(1, sum(map(len, self._items.values()))),
            constant=constant_spread(bool(processes.cores)),
            stored=self._stored,
            earlier=self._residuals,
            budget_s=self._options.budget_s,
            only=self._options.only,
        )


def _gates_times(item: pytest.Item) -> bool:
    """Return whether a test's marker names the slow-down that it allows."""
    return any("max_regression" in marker.kwargs for marker in item.iter_markers("tfperf"))


def _described(versions: Versions, ref: str | None) -> str:
    """Return the name of the other version with its commit, its Python and what differs."""
    about = ""
    if ref is not None:
        same = ", which the working tree's tracked files equal" if versions.tree.same else ""
        about = f"{ref} ({versions.tree.commit[:12]}{same})"
    python = describe_other_python({"against": versions.to_json()}, _NAMED)
    return "; ".join(filter(None, (about, python)))


def _name_other_python(report: pytest.TestReport, versions: Versions) -> None:
    """Add the other Python and its packages to the environment that reports show."""
    record, named = getattr(report, "tfperf", None), versions.to_json()
    if record is not None and named is not None:
        record["environment"] = {**record["environment"], "against": named}
