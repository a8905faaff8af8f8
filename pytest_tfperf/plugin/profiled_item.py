"""
One profiled test, from the first reading of its marker to its report.

The marker is read when pytest collects. So this module imports little, and the rest when the test
runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.checks.arguments import REGRESSIONS, Wanted
from pytest_tfperf.checks.limits import STRUCTURAL, TIMING, Limit, asked_for
from pytest_tfperf.errors import CaptureError, LimitError
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.registry import Registry
from pytest_tfperf.plugin.workers import shares_cpu
from pytest_tfperf.results import BROKEN, DECIDED, WORST_FIRST, Check, Profile, Verdict
from pytest_tfperf.turns.names import CHILD_SERVER, as_folder_name, plain_nodeid
from pytest_tfperf.values import Json, Table

if TYPE_CHECKING:
    from pytest_tfperf.machine.clocks import Stopwatch
    from pytest_tfperf.remedies.apart import TrialProcesses
    from pytest_tfperf.remedies.remedy import Call
    from pytest_tfperf.remedies.results import Remedies
    from pytest_tfperf.runs import Outcome, ProfiledTest
    from pytest_tfperf.turns.child_plugin import CoordinatedServer
    from pytest_tfperf.turns.children import Replay
    from pytest_tfperf.turns.workers import WorkersCall
    from pytest_tfperf.variants.comparison import Comparison, ComparisonCall

__tracebackhide__ = True

_SHARED_GPUS = (
    "workers share all GPUs, since TensorFlow looked for its devices while tests were collected: "
    "set any tfperf_ ini value, so that GPUs are shared out before"
)


class ProfiledItem:
    """What a test asks for, what was measured, and what was decided: nothing without an item."""

    def __init__(
        self,
        item: pytest.Item | None,
        options: Options,
        registry: Registry,
        on_terminal: bool = False,
    ) -> None:
        self._item, self._on_terminal = item, on_terminal
        self.options, self.registry = options, registry
        self.wanted = Wanted()
        """Arguments of its markers, and of the ini values."""
        self._marks: list[pytest.Mark] | None = None
        self.is_started = False
        """True once it has a profiler."""
        self.child: CoordinatedServer | None = None
        """The plugin of this process, if a coordinator times and judges its profiles."""
        self.announce: Callable[[str], None] = lambda _: None
        """Shows what takes long."""
        self.scratch: Path | None = None
        """A folder that is removed even if this process crashes."""
        self.kept_traces: Path | None = None
        """The folder in which traces are kept, if they are."""
        self.notes: tuple[str, ...] = ()
        """Notes on every profile."""
        self.whole = False
        """True if all of a profile is shown, recorded, compared or sent to another process."""
        self.names: set[str] = set()
        """Names of the profiles that were begun."""
        self.asked: list[tuple[Limit, ...]] = []
        """Limits of each profile that sets its own."""
        self.results: dict[str, tuple[Profile, tuple[Limit, ...]]] = {}
        """The profiles by name, each with the limits that hold for it."""
        self.calls: dict[str, Call] = {}
        """The steps and data of profiles by name, which remedies can be tried on."""
        self.tried: dict[str, Remedies] = {}
        """What remedies gave, by profile."""
        self.trials: TrialProcesses | Replay | None = None
        """What tries remedies in processes of their own, or knows what they gave there."""
        self.frameworks: set[str] = set()
        """The frameworks that ran the steps."""
        self.is_decided = False
        """True once nothing would decide limits of a further profile, as of one in a teardown."""
        self.checks: tuple[Check, ...] = ()
        self.is_broken = False
        """True if the test failed only for its performance."""
        self.waits_s: list[float] = []
        """Seconds that it waited for other runs, each time."""
        self._compare: Callable[[ComparisonCall], Comparison] | None = None
        self._run_workers: Callable[[WorkersCall], tuple[Profile, ...]] | None = None

    @property
    def item(self) -> pytest.Item:
        """The test of pytest."""
        assert self._item is not None, "there is no pytest"
        return self._item

    @property
    def is_of_pytest(self) -> bool:
        """True if there is a test that another process can run again."""
        return self._item is not None

    def read_marker(self) -> Wanted:
        """Read the nearest marker, then other ones and ini values; LimitError if not understood."""
        marks = list(self.item.iter_markers("tfperf"))
        if marks != self._marks:
            arguments = self.options.marker_arguments
            # pytest has the marks of a parametrized case behind those of its function
            callspec = getattr(self.item, "callspec", None)
            of_case = [mark for mark in marks if callspec and mark in callspec.marks]
            others = [mark for mark in marks if mark not in of_case]
            for mark in (*reversed(others), *of_case):
                if mark.args:
                    raise LimitError(
                        f"takes keyword arguments only, but was given {mark.args[0]!r}; "
                        "e.g. max_input_bound='5%'"
                    )
                arguments |= mark.kwargs
            self.wanted = Wanted.read(arguments, self.registry.rows)
            self._marks = marks
        return self.wanted

    def start(self) -> None:
        """
        Prepare what each profile of the test needs; raises CaptureError if this process has not the
        flags of XLA that the test asks for, or LimitError if its marker cannot be understood.
        """
        from pytest_tfperf.plugin.progress import announcer
        from pytest_tfperf.turns.own_flags import differing_flags_of

        item, config, options = self.item, self.item.config, self.options
        wanted = self.read_marker()
        server = config.pluginmanager.get_plugin(CHILD_SERVER)
        if server is not None:
            from pytest_tfperf.turns.child_plugin import CoordinatedServer

            self.child = server if isinstance(server, CoordinatedServer) else None
            self.scratch = Path(server.scratch)  # its parent removes it at once
        elif factory := getattr(config, "_tmp_path_factory", None):
            self.scratch = Path(factory.getbasetemp())
        shown = options.reports or options.summary or getattr(config.option, "xmlpath", None)
        compared = options.baseline or options.update or options.is_paired
        self.whole = bool(shown or compared or server)
        if options.trace_dir:
            self.kept_traces = options.trace_dir / as_folder_name(plain_nodeid(item))
        self.announce = announcer(item, self._on_terminal)
        flags = differing_flags_of(config) if wanted.autocluster else ()
        self.notes = (*flags, *_shared_gpus())

    @property
    def is_in_worker(self) -> bool:
        """True if other workers run as many steps, since they wait for each other."""
        part = self.child.part if self.child else None
        return part is not None and part.call == "workers"

    def exclusive(
        self, announce: Callable[[str], None], *timers: Stopwatch
    ) -> AbstractContextManager[bool]:
        """Keep other tests from measuring meanwhile, as `measuring_alone`; a coordinator does."""
        from pytest_tfperf.machine.locks import measuring_alone, measuring_anyway

        if self.child is not None:
            return measuring_anyway(announce, *timers)
        patience_s = self.options.lock_timeout
        return measuring_alone(announce, *timers, patience_s=patience_s, waits_s=self.waits_s)

    def on_shared_cpu(self) -> bool:
        """Return whether other workers may use the CPU that the steps run on."""
        return shares_cpu() and not _has_accelerators()

    def compare(self, call: ComparisonCall) -> Comparison:
        """Compare variants in own processes, or answer in one of them; CaptureError if it fails."""
        from pytest_tfperf.turns.pytest_child import can_start_processes
        from pytest_tfperf.variants.turns import VariantProcesses, compare_here

        if self._compare is None:
            if replay := self.replay("compare"):
                self._compare = partial(compare_here, replay)
            elif can_start_processes():
                self._compare = VariantProcesses(
                    self.item, self.on_shared_cpu, self.announce, self.exclusive
                )
            else:
                raise CaptureError(
                    "compare(data=…) and compare_backends(…) need SIGSTOP, which this platform "
                    "lacks"
                )
        return self._compare(call)

    def run_workers(self, call: WorkersCall) -> tuple[Profile, ...]:
        """Run workers in own processes, or answer in one of them; CaptureError if one fails."""
        from pytest_tfperf.turns.pytest_child import can_start_processes
        from pytest_tfperf.turns.workers import WorkerProcesses, work_here

        if self._run_workers is None:
            if replay := self.replay("workers"):
                self._run_workers = partial(work_here, replay)
            elif can_start_processes():
                self._run_workers = WorkerProcesses(self.item, self.announce, self.exclusive)
            else:
                raise CaptureError("tf_profile.workers is not possible on Windows")
        return self._run_workers(call)

    def replay(self, call: str) -> Replay | None:
        """
        Return what answers calls in this process, None where it starts the processes; raises
        CaptureError if it was started for another call.
        """
        from pytest_tfperf.turns.children import Replay

        if self.child is None or self.child.part is None:
            return None
        if self.child.part.call != call:
            raise CaptureError(
                f"tf_profile.{call} is not possible in a process of tf_profile."
                f"{self.child.part.call}"
            )
        return Replay(self.child, self.child.part)

    def unmade(self) -> list[str]:
        """Return the limits of profiles that the test asked for, and that were not made."""
        made = [limits for _, limits in self.results.values()]
        lost = [limits for limits in self.asked if not any(limits is one for one in made)]
        arguments = set[str]()
        if self.names - self.results.keys():  # begun, and ended with an error
            lost.append(self.wanted.limits)
            shares = {name: getattr(self.wanted, name) for name in REGRESSIONS}
            arguments = {f"{name}={share}" for name, share in shares.items() if share is not None}
        return sorted(arguments.union(limit.argument for limits in lost for limit in limits))

    def limited(self) -> list[tuple[Profile, tuple[Limit, ...]]]:
        """Return the profiles with their limits, and with those of a marker added meanwhile."""
        return [
            (profile, (*limits, *(late for late in self.wanted.limits if not _has(limits, late))))
            for profile, limits in self.results.values()
        ]

    def add_table(self, name: str, key: str, table: Table) -> None:
        """Add a table to the profile of a name."""
        from pytest_tfperf.metrics.profile import extended

        profile, limits = self.results[name]
        tables = extended(profile.tables, {key: table})
        self.results[name] = replace(profile, tables=tables), limits

    def environment(self) -> Json:
        """Return the machine, and versions of what ran the steps; nothing without steps."""
        from pytest_tfperf.frameworks.in_use import named
        from pytest_tfperf.machine.description import describe

        if not self.results:
            return {}  # it may load a framework
        try:
            return describe(named(self.frameworks))
        except CaptureError:  # the test has failed with it
            return describe(())

    def record(self, outcome: Outcome) -> ProfiledTest:
        """Return the results of a test whose body has this outcome."""
        from pytest_tfperf.metrics.profile import so_far
        from pytest_tfperf.runs import ProfiledTest
        from pytest_tfperf.turns.names import file_of, key_in_file

        item, limited = self.item, self.limited()
        return ProfiledTest(
            nodeid=plain_nodeid(item),
            file=file_of(item),
            key=key_in_file(item),
            outcome=outcome,
            profiles=tuple(so_far(profile) for profile, _ in limited),
            checks=self.checks,
            environment=self.environment(),
            max_regression=self.wanted.max_regression,
            n_unchecked=self._n_unchecked(),
            shared_cpu=bool(limited) and self.on_shared_cpu(),
            line=None if item.location[1] is None else item.location[1] + 1,
        )

    def _n_unchecked(self) -> int:
        """Count the limits that `--tfperf-only` leaves out, those on a regression too."""
        only, wanted = self.options.only, self.wanted
        regressions = {
            STRUCTURAL: wanted.max_regression,
            TIMING: wanted.max_python_calls_regression,
        }
        limited = self.limited()
        n_limits = sum(not asked_for(one.metric, only) for _, limits in limited for one in limits)
        return n_limits + len(limited) * (regressions.get(only or "") is not None)

    def report(self, report: Any) -> None:
        """Put the results on the report of the call phase, as JSON, and as JUnit properties."""
        from pytest_tfperf.report.ci import PREFIX, properties

        item, record = self.item, self.record(report.outcome)
        item.user_properties[:] = [
            *(one for one in item.user_properties if not one[0].startswith(PREFIX)),
            *properties(record.profiles),
        ]
        report.user_properties[:] = item.user_properties
        sections = [(title, _OF_THE_PROFILER.sub("", text)) for title, text in report.sections]
        report.sections = [(title, text) for title, text in sections if text]
        report.tfperf = record.to_json()
        report.tfperf_broken = self.is_broken
        report.tfperf_waited_s = sum(self.waits_s)
        report.tfperf_undecided = undecided(record.checks, self.options)
        crash = getattr(report.longrepr, "reprcrash", None)
        if self.is_broken and crash is not None:  # the letter P and the word PERF tell of failure
            message = crash.message.removeprefix("Failed: ").removeprefix(f"{item.name}: ")
            message = message.removeprefix(f"{item.name} is ")  # of the step time
            short = message.removeprefix(f"{item.name}/")
            crash.message = message if short[:1].isdecimal() else short  # a number needs its test
            crash.path, crash.lineno = str(item.path), (item.location[1] or 0) + 1
        if report.passed and {"A", "P"} & set(item.config.getoption("reportchars", "")):
            from pytest_tfperf.report.results_table import results_table

            lines = "\n".join(text for text, _ in results_table([record], width=0))
            report.sections.append(("tfperf", lines))


_OF_THE_PROFILER = re.compile(
    r"^(?:I\d{4} |[\d:. -]+: I ).*\b(?:profiler_session|save_profile)\.cc:\d+\].*\n?", re.MULTILINE
)
"""Lines of information, with which each session of the profiler fills the stderr of a test."""


def fails(check: Check, options: Options) -> bool:
    """Return whether a check fails its test."""
    if check.verdict is Verdict.MISSING:
        return options.missing == "fail" or options.strict
    is_open = check.verdict not in DECIDED and not check.is_unasked
    return check.verdict in BROKEN or (options.strict and is_open)


def undecided(checks: tuple[Check, ...], options: Options) -> str | None:
    """Return the first verdict, in order of attention, that leaves a passing test undecided."""
    asked = [check for check in checks if not check.is_unasked]
    still_open = {check.verdict for check in asked if not fails(check, options)} - DECIDED
    named = [verdict.value for verdict in WORST_FIRST if verdict in still_open - {Verdict.NEW}]
    return named[0] if named else None


def _has(limits: tuple[Limit, ...], other: Limit) -> bool:
    """Return whether there is a limit of the same name, which goes first."""
    name = other.metric.name, other.relation
    return any((one.metric.name, one.relation) == name for one in limits)


def _has_accelerators() -> bool:
    from pytest_tfperf.frameworks.in_use import has_accelerators

    return has_accelerators()


def _shared_gpus() -> tuple[str, ...]:
    """Return a note if workers share the same GPUs."""
    from pytest_tfperf.machine.gpu_share import is_to_share

    return (_SHARED_GPUS,) if is_to_share() and _has_accelerators() else ()
