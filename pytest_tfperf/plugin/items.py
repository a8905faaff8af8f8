"""A profiled test: its profiler, its checks and its report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.roots import with_causes
from pytest_tfperf.errors import CaptureError, LimitError, PairedError
from pytest_tfperf.frameworks.in_use import has_accelerators
from pytest_tfperf.machine.gpu_share import is_to_share
from pytest_tfperf.machine.locks import Exclusive, measuring_alone, measuring_anyway
from pytest_tfperf.markers import is_marked
from pytest_tfperf.metrics.profile import so_far
from pytest_tfperf.plugin.confirmation import confirmed, is_suspected, profiled_again
from pytest_tfperf.plugin.decide import (
    decide,
    is_measured,
    n_unchecked,
    not_made,
    nothing_compared,
    nothing_profiled,
    undecided,
    with_late_limits,
)
from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.option_values import plan_of
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profile_settings import Settings
from pytest_tfperf.plugin.progress import announcer
from pytest_tfperf.plugin.registry import Registry
from pytest_tfperf.plugin.workers import shares_cpu
from pytest_tfperf.report.ci import PREFIX, properties
from pytest_tfperf.results import Check, without_praise
from pytest_tfperf.runs import Outcome, ProfiledTest
from pytest_tfperf.turns.calls import Replay
from pytest_tfperf.turns.child_plugin import ChildServer, CoordinatedServer
from pytest_tfperf.turns.names import (
    CHILD_SERVER,
    as_folder_name,
    file_of,
    key_in_file,
    plain_nodeid,
    registered,
)
from pytest_tfperf.turns.own_flags import differing_flags_of
from pytest_tfperf.turns.workers import RunWorkers, WorkerProcesses, work_here
from pytest_tfperf.values import Unknown
from pytest_tfperf.variants.comparison import CompareInProcesses
from pytest_tfperf.variants.in_processes import (
    VariantProcesses,
    can_start_processes,
    compare_here,
)

_WAITS_S: pytest.StashKey[list[float]] = pytest.StashKey()


def new_profiler(
    item: pytest.Item, wanted: Wanted, options: Options, registry: Registry, on_terminal: bool
) -> TfProfile:
    """
    Make the profiler of a test.

    Args:
        item: The test.
        wanted: Arguments of its markers.
        options: Options of the run.
        registry: The metrics.
        on_terminal: True if pytest writes to a terminal.

    Raises:
        pytest.fail.Exception: If it cannot be profiled as it is asked for.
    """
    child = _coordinated(item)
    try:
        settings = Settings(
            wanted=wanted,
            plan=plan_of(options),
            keep=options.trace_dir / as_folder_name(plain_nodeid(item))
            if options.trace_dir
            else None,
            scratch=_scratch(item.config),
            disabled=options.disable,
            notes=(
                *(differing_flags_of(item.config) if wanted.autocluster else ()),
                *_shared_gpus(),
            ),
            announce=announcer(item, on_terminal),
            turn_clients=child.turn_client if child else None,
            compare_in_processes=_compare_in_processes(item, child, options, on_terminal),
            run_workers=_run_workers(item, child, options, on_terminal),
            in_step=child is not None and child.part is not None and child.part.call == "workers",
            keeps=child.keeps if child else lambda _: True,
            registry=registry,
            exclusive=_exclusive(item, options, child),
            whole=_is_whole(item.config, options),
        )
        return TfProfile(settings)
    except (CaptureError, LimitError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def checks_of(
    item: pytest.Item, profiler: TfProfile, wanted: Wanted, options: Options, on_terminal: bool
) -> list[Check]:
    """
    Return the checks of a test that passed; none on the ref of a paired run.

    Args:
        item: The test.
        profiler: Its profiler.
        wanted: Arguments of its markers.
        options: Options of the run.
        on_terminal: True if pytest writes to a terminal.
    """
    child = _coordinated(item)
    profiler.end()
    measured = with_late_limits(profiler.results(), wanted)
    profiles = [profile for profile, _ in measured]
    environment = profiler.environment() if measured else {}
    setting = environment.get("setting", {})
    against = child.checks(profiles, wanted.max_regression, setting) if child else []
    if against is None:
        return []
    shares = bool(measured) and _on_shared_cpu()
    checks = decide(
        measured, wanted, file_of(item), key_in_file(item), options, environment, shares
    )
    if any(map(is_suspected, checks)):
        checks = _confirmed(item, profiler, checks, wanted, options, on_terminal)
    if not checks and is_marked(item) and not any(map(is_measured, profiles)):
        checks = [nothing_profiled("; ".join(profile.ended or "" for profile in profiles))]
    if unmade := profiler.unmade():
        checks.append(not_made(unmade))
    if options.is_paired and child is None and not options.disable:
        against = [nothing_compared()]
    return with_causes(without_praise(checks + against), map(so_far, profiles))


def _confirmed(
    item: pytest.Item,
    profiler: TfProfile,
    checks: Sequence[Check],
    wanted: Wanted,
    options: Options,
    on_terminal: bool,
) -> list[Check]:
    """Measure again in a second process, and return the checks with what it confirmed."""
    try:
        exclusive = _exclusive(item, options, _coordinated(item))
        again = profiled_again(item, announcer(item, on_terminal), exclusive)
    except PairedError as error:
        return [
            confirmed(check, Unknown(str(error))) if is_suspected(check) else check
            for check in checks
        ]
    second = {
        check.profile: check
        for check in decide(
            [(profile, ()) for profile in again.values()],
            wanted,
            file_of(item),
            key_in_file(item),
            options,
            profiler.environment(),
        )
        if check.metric == "step_time"
    }
    none = Unknown("the second process produced no such profile, or no step time")
    return [
        confirmed(check, second.get(check.profile, none)) if is_suspected(check) else check
        for check in checks
    ]


def record_of(
    item: pytest.Item,
    profiler: TfProfile,
    wanted: Wanted,
    checks: tuple[Check, ...],
    outcome: Outcome,
    only: str | None,
) -> ProfiledTest:
    """
    Return the results of a test: its profiles and its checks.

    Args:
        item: The test.
        profiler: Its profiler.
        wanted: Arguments of its markers.
        checks: Its checks.
        outcome: Outcome of its call phase.
        only: The value of `--tfperf-only`.
    """
    measured = with_late_limits(profiler.results(), wanted)
    return ProfiledTest(
        nodeid=plain_nodeid(item),
        file=file_of(item),
        key=key_in_file(item),
        outcome=outcome,
        profiles=tuple(so_far(profile) for profile, _ in measured),
        checks=checks,
        environment=profiler.environment() if measured else {},  # it may load a framework
        max_regression=wanted.max_regression,
        n_unchecked=n_unchecked(measured, wanted, only),
        shared_cpu=bool(measured) and _on_shared_cpu(),
        line=None if item.location[1] is None else item.location[1] + 1,
    )


def set_properties(item: pytest.Item, report: pytest.TestReport, record: ProfiledTest) -> None:
    """
    Put the metrics of the last run of a test on its reports, as JUnit properties.

    Args:
        item: The test.
        report: Report of its call phase.
        record: Its results.
    """
    found = properties(record.profiles)
    item.user_properties[:] = [
        *(one for one in item.user_properties if not one[0].startswith(PREFIX)),
        *found,
    ]
    report.user_properties[:] = item.user_properties


def with_results(
    item: pytest.Item,
    report: pytest.TestReport,
    record: ProfiledTest,
    is_broken: bool,
    options: Options,
) -> None:
    """
    Put the results of a test on the report of its call phase.

    Args:
        item: The test.
        report: The report.
        record: The results.
        is_broken: True if the test failed only for its performance.
        options: Options of the run.
    """
    sections = [(title, _OF_THE_PROFILER.sub("", text)) for title, text in report.sections]
    report.sections = [(title, text) for title, text in sections if text]
    report.tfperf = record.to_json()  # type: ignore[attr-defined]
    report.tfperf_broken = is_broken  # type: ignore[attr-defined]
    report.tfperf_waited_s = sum(item.stash.get(_WAITS_S, ()))  # type: ignore[attr-defined]
    report.tfperf_undecided = undecided(record.checks, options)  # type: ignore[attr-defined]
    crash = getattr(report.longrepr, "reprcrash", None)
    if is_broken and crash is not None:  # the letter P and the word PERF tell that it failed
        message = crash.message.removeprefix("Failed: ")
        crash.message = message.removeprefix(f"{item.name}: ").removeprefix(f"{item.name}/")
        crash.path, crash.lineno = str(item.path), (item.location[1] or 0) + 1
    if report.passed and {"A", "P"} & set(item.config.option.reportchars):
        from pytest_tfperf.report.results_table import results_table

        lines = "\n".join(text for text, _ in results_table([record], width=0))
        report.sections.append(("tfperf", lines))


_OF_THE_PROFILER = re.compile(
    r"^(?:I\d{4} |[\d:. -]+: I ).*\b(?:profiler_session|save_profile)\.cc:\d+\].*\n?", re.MULTILINE
)
"""Lines of information, with which each session of the profiler fills the stderr of a test."""


def _is_whole(config: pytest.Config, options: Options) -> bool:
    """Return whether all of a profile is shown, recorded, compared or sent to another process."""
    shown = options.reports or options.summary or getattr(config.option, "xmlpath", None)
    compared = options.baseline or options.update or options.is_paired
    return bool(shown or compared or _server(config))


def _server(config: pytest.Config) -> ChildServer | None:
    """Return the plugin of a child process, if this process is one."""
    return registered(config, CHILD_SERVER, ChildServer)


def _coordinated(item: pytest.Item) -> CoordinatedServer | None:
    """Return the plugin of a child process whose profiles a coordinator times and judges."""
    return registered(item.config, CHILD_SERVER, CoordinatedServer)


def _scratch(config: pytest.Config) -> Path | None:
    """
    Return a folder that is removed even if this process crashes.

    The parent of a child process sees to it at once, pytest by the third run after this one.
    """
    server = _server(config)
    if server is not None:
        return Path(server.scratch)
    factory = getattr(config, "_tmp_path_factory", None)
    return None if factory is None else Path(factory.getbasetemp())


def _compare_in_processes(
    item: pytest.Item, child: CoordinatedServer | None, options: Options, on_terminal: bool
) -> CompareInProcesses | None:
    """Return what runs variants in processes of their own, or answers in one of them."""
    if child is not None and child.part is not None:
        is_ours = child.part.call == "compare"
        return partial(compare_here, Replay(child, child.part)) if is_ours else None
    if not can_start_processes():
        return None
    announce = announcer(item, on_terminal)
    return VariantProcesses(item, _on_shared_cpu, announce, _exclusive(item, options, child))


def _run_workers(
    item: pytest.Item, child: CoordinatedServer | None, options: Options, on_terminal: bool
) -> RunWorkers | None:
    """Return what runs workers in processes of their own, or answers in one of them."""
    if child is not None and child.part is not None:
        is_ours = child.part.call == "workers"
        return partial(work_here, Replay(child, child.part)) if is_ours else None
    if not can_start_processes():
        return None
    return WorkerProcesses(item, announcer(item, on_terminal), _exclusive(item, options, child))


def _on_shared_cpu() -> bool:
    """Return whether other workers may use the CPU that the steps run on."""
    return shares_cpu() and not has_accelerators()


def _exclusive(item: pytest.Item, options: Options, child: CoordinatedServer | None) -> Exclusive:
    """Return what keeps other tests from measuring meanwhile; a coordinator does so itself."""
    if child is not None:
        return measuring_anyway
    waits_s = item.stash.setdefault(_WAITS_S, [])
    return partial(measuring_alone, patience_s=options.lock_timeout, waits_s=waits_s)


def _shared_gpus() -> tuple[str, ...]:
    """Return a note if workers share the same GPUs."""
    if not is_to_share() or not has_accelerators():
        return ()
    return (
        "workers share all GPUs, since TensorFlow looked for its devices while tests were "
        "collected: set any tfperf_ ini value, so that GPUs are shared out before",
    )
