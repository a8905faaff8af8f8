"""Collect the results of a run, write baselines and reports, and show the summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.markers import is_whole, note_worker
from pytest_tfperf.plugin.options import TABLE, Options
from pytest_tfperf.plugin.workers import n_workers
from pytest_tfperf.text import plural

if TYPE_CHECKING:
    from pytest_tfperf.runs import ProfiledTest

_WAIT_MATTERS_S = 1.0


class Controller:
    """Plugin of the process that shows the results; `asked` if an option of tfperf is set."""

    def __init__(self, config: pytest.Config, options: Callable[[], Options], asked: bool) -> None:
        self._config, self._options, self._asked = config, options, asked
        self._tests: dict[tuple[str, object], ProfiledTest] = {}
        """Results by node id, and by worker if each worker runs all tests."""
        self._lines: list[tuple[str, str | None]] = []
        self._unchecked: set[str] = set()
        """Tests that passed, whose limits nothing checked."""
        self._died: set[str] = set()
        """Tests whose worker died."""
        self._left_out = False
        self._waited_s = 0.0
        """Seconds that tests waited for measurements of other runs."""

    def pytest_report_header(self) -> str | None:
        """Return a line on what the options ask for, and on the limits of several workers."""
        said = [
            option.header
            for option in TABLE.values()
            if option.header and option.flag_value(self._config)
        ]
        workers = n_workers(self._config)
        if workers > 1 and self._asked:
            gpus = visible_gpus()
            said.append(
                f"{plural(len(gpus), 'GPU is', 'GPUs are')} shared out among {workers} workers"
                if gpus
                else "a profiled test runs while the other workers wait"
            )
        return f"tfperf: {'; '.join(said)}" if said else None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the last result of a test; a failing subtest makes it a failure."""
        data = getattr(report, "tfperf", None)
        key = (
            report.nodeid,
            getattr(report, "node", None)
            if getattr(self._config.option, "dist", "no") == "each"
            else None,
        )
        if data is not None:
            from pytest_tfperf.runs import ProfiledTest

            test = ProfiledTest.from_json(data)
            self._tests[key] = replace(test, outcome="failed") if report.failed else test
        elif report.when == "setup":
            self._tests.pop(key, None)
        elif report.when == "teardown" and report.failed and key in self._tests:
            self._tests[key] = replace(self._tests[key], outcome="error")
        self._waited_s += getattr(report, "tfperf_waited_s", 0)
        if getattr(report, "tfperf_unchecked", False):
            self._unchecked.add(report.nodeid)
        if report.failed and report.when not in ("setup", "call", "teardown"):  # xdist's "???"
            self._died.add(report.nodeid)
        self._left_out |= report.skipped or (
            report.failed and report.when not in ("call", "teardown")
        )  # or its worker died

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Note whether a worker of pytest-xdist left tests out."""
        note_worker(self._config, node)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write baselines and reports, and fail the run if too little was decided."""
        asked = (
            self._config.option.tfperf_report
            or self._config.option.tfperf_min_checks
            or TABLE["min_checks"].ini_value(self._config)
        )
        if self._config.option.collectonly or not (self._tests or self._unchecked or asked):
            return
        from pytest_tfperf.plugin.conclude import conclude

        ended = (
            exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            and not session.shouldfail
        )
        whole = ended and not self._left_out and is_whole(self._config)
        options, cache = self._options(), getattr(self._config, "cache", None)
        self._lines, good = conclude(
            self.tests(), options, whole, cache, sorted(self._unchecked), sorted(self._died)
        )
        if not good and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table, the checks that did not pass, and their number."""
        if not self._tests and not self._lines:
            return
        from pytest_tfperf.plugin.conclude import summary
        from pytest_tfperf.text import for_terminal, wrapped

        writer = self._config.get_terminal_writer()
        verbosity, width = self._config.get_verbosity(), writer.fullwidth
        if verbosity >= 0:
            terminalreporter.write_sep("=", "tfperf")
        failures_shown = self._config.option.tbstyle != "no"
        encoding = getattr(getattr(writer, "_file", None), "encoding", None)
        lines = summary(self.tests(), width, verbosity, failures_shown, encoding)
        shown = [
            (
                for_terminal(
                    wrapped(line.text, width, line.deeper) if terminalreporter.isatty else line.text
                ),
                line.colour,
            )
            for line in lines
        ]
        waited = f"tfperf: waited {self._waited_s:.0f} s for other measurements on this machine"
        said = [(waited, "yellow")] if self._waited_s >= _WAIT_MATTERS_S else []
        for text, colour in [*self._lines, *said, *shown]:
            terminalreporter.write_line(text, **({colour: True} if colour else {}))

    def tests(self) -> list[ProfiledTest]:
        """Return one result a test: that of a worker in which it failed, or error if one died."""
        found: dict[str, ProfiledTest] = {}
        for (nodeid, _), test in self._tests.items():
            if nodeid not in found or found[nodeid].outcome not in ("failed", "error"):
                found[nodeid] = test
        return [
            replace(test, outcome="error") if nodeid in self._died else test
            for nodeid, test in found.items()
        ]
