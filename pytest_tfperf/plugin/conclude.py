"""The end of a pytest run: baselines, reports and the summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pytest_tfperf.alike import alike, named
from pytest_tfperf.baseline.record import Recorded, record
from pytest_tfperf.baseline.store import Place, entry_key, read_structure
from pytest_tfperf.errors import BaselineError, TfperfError
from pytest_tfperf.files import short_path
from pytest_tfperf.machine.description import branch, commit
from pytest_tfperf.plugin.decide import project_of
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import fails
from pytest_tfperf.report.ci import annotate, append_summary
from pytest_tfperf.report.run_file import CACHE, keep_last_run, write_run
from pytest_tfperf.report.run_text import TextLine, render
from pytest_tfperf.results import DECIDED
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import and_more, for_terminal, in_ascii, plural, shows_pictures

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

Line = tuple[str, "str | None"]
"""Text and its colour."""
_NAMED = 3


def conclude(
    tests: Sequence[ProfiledTest],
    options: Options,
    whole: bool,
    cache: pytest.Cache | None = None,
    unchecked: Sequence[str] = (),
    died: Sequence[str] = (),
) -> tuple[list[Line], bool]:
    """
    Write baselines and reports of a run, `whole` if no test was left out, see that enough checks
    were decided, and return lines to show and whether all went well.
    """
    run = _run_of(tests, options, cache is not None)
    too_few = _too_few_checks(run, options)
    is_named = unchecked and (options.strict or not options.disable)
    without_profile = _without_profile(unchecked) if is_named else None
    sentences = without_profile, too_few, _without_worker(died) if died else None
    run = replace(run, not_checked=tuple(filter(None, sentences)))
    lines: list[Line] = []
    bad: list[str] = []
    if options.update:
        recorded, bad = _write_baselines(run, options)
        if recorded is not None:
            lines += _update_lines(recorded, tests, options.rootdir)
    if options.update or options.baseline:
        lines += [
            (f"tfperf: unused baseline entries in {entry}", "yellow")
            for entry in _unused_entries(tests, options, whole)
        ]
    for path in options.reports:
        try:
            write_run(run, path)
            lines.append((f"tfperf: report written to {path}", None))
        except TfperfError as error:
            bad.append(str(error))
    lines += [*_keep(run, cache), *_add_to_history(run, options)]
    if without_profile and options.strict:
        bad.append(without_profile)
    elif without_profile:
        lines.append((f"tfperf: {without_profile}", "yellow"))
    bad += [too_few] if too_few else []
    lines += [(f"tfperf: {text}", "red") for text in bad]
    # keys of a baseline may be of another person; annotations are commands, and mean to be
    shown = [(for_terminal(text), colour) for text, colour in lines]
    return [*shown, *_write_for_github(run, options)], not bad


def summary(
    tests: Sequence[ProfiledTest],
    width: int,
    verbosity: int,
    failures_shown: bool,
    encoding: str | None,
) -> list[TextLine]:
    """Summarise a run for a terminal."""
    if not tests:
        return []
    run = Run(created=_now(), tests=tuple(tests))
    lines = render(run, width, verbosity, failures_shown)
    if shows_pictures(encoding):
        return lines
    return [line._replace(text=in_ascii(line.text)) for line in lines]


def _keep(run: Run, cache: pytest.Cache | None) -> list[Line]:
    """Keep the results of a run that profiled something; an error there fails nothing."""
    if cache is None or not any(test.profiles for test in run.tests):
        return []
    try:
        keep_last_run(run, cache.mkdir(CACHE))
    except (OSError, TfperfError, TypeError, ValueError) as error:
        return [(f"tfperf: tfperf show --last will not show this run: {error}", "yellow")]
    return []


def _add_to_history(run: Run, options: Options) -> list[Line]:
    """Add a run that profiled something to the history; an error there fails nothing."""
    if options.history is None or not any(test.profiles for test in run.tests):
        return []
    from pytest_tfperf.stores.history import add_run

    (first, *others), good = add_run(run, options.history, project_of(options), options.reports)
    lines: list[Line] = [(f"tfperf: {first}", None if good else "yellow")]
    return [*lines, *((line, "yellow") for line in others)]


def _write_for_github(run: Run, options: Options) -> list[Line]:
    """Write annotations and the job's summary, in GitHub Actions; an error there fails nothing."""
    lines: list[Line] = []
    if options.workspace:
        commands = annotate(
            run, options.rootdir, options.workspace, lambda check: fails(check, options)
        )
        lines += [(command, None) for command in commands]
    if options.summary and run.tests:
        try:
            append_summary(run, options.summary)
        except TfperfError as error:
            lines.append((f"tfperf: {error}", "yellow"))
    return lines


def _run_of(tests: Sequence[ProfiledTest], options: Options, kept: bool) -> Run:
    """Assemble the run from its tests."""
    profiled = any(test.profiles for test in tests)
    written = options.update or options.reports or (profiled and (kept or options.history))
    return Run(
        created=_now(),
        tests=tuple(tests),
        commit=commit(options.rootdir) if written else "",
        branch=branch(options.rootdir) if written else "",
    )


def _write_baselines(run: Run, options: Options) -> tuple[Recorded | None, list[str]]:
    """Record the tests that passed, all files together; return changes, None if not, and errors."""
    passed = [test for test in run.tests if test.outcome == "passed"]
    wanted = {
        replace(
            Place.of(file, options.rootdir, options.baseline_dir),
            keeps_times=options.history is None,
        ): [replace(run, tests=tuple(test for test in passed if test.file == file))]
        for file in sorted({test.file for test in passed})
    }
    try:
        only_new = options.update == "new"
        recorded = record(wanted, only_new, also_partly=True)
    except BaselineError as error:
        return None, [str(error)]
    return recorded, list(recorded.unread)


def _update_lines(recorded: Recorded, tests: Sequence[ProfiledTest], rootdir: Path) -> list[Line]:
    """Describe an update: entries that changed, histories that start anew, what was left out."""
    names = {test.key for test in tests}
    n_passed = sum(test.outcome == "passed" for test in tests)
    n_written, of = len(recorded.entries), plural(n_passed, "passing test")
    written = f"{plural(n_written, 'entry', 'entries')} written for {of}"
    found = written if n_written or not n_passed else f"as it was for {of}"
    lines: list[Line] = [(f"tfperf: baseline: {found}", None)]
    for changes, colour in ((recorded.entries, None), (recorded.anew, "yellow")):
        for path in dict.fromkeys(change.path for change in changes):
            lines.append((f"  in {short_path(path, rootdir)}:", None))
            of_file = ((change.key, change.what) for change in changes if change.path == path)
            for keys, what in alike(of_file):
                lines.append((f"    {named(keys, names)}: {what}", colour))
    if recorded.added:
        added = plural(len(recorded.added), "profile")
        lines.append((f"  times: a run added to the history of {added}", None))
    for keys, why in alike((change.key, change.what) for change in recorded.left_out):
        lines.append((f"  not recorded: {named(keys, names)}: {why}", "yellow"))
    return lines


def _too_few_checks(run: Run, options: Options) -> str | None:
    """Say that too few checks were decided, None if there are enough."""
    decided = sum(check.verdict in DECIDED for test in run.tests for check in test.checks)
    if decided >= options.min_checks:
        return None
    return (
        f"{plural(decided, 'check was', 'checks were')} decided, "
        f"fewer than the {options.min_checks} that --tfperf-min-checks asks for"
    )


def _without_worker(nodeids: Sequence[str]) -> str:
    """Say that tests did not come to their end, as pytest-xdist does."""
    its = "its" if len(nodeids) == 1 else "their"
    return (
        f"{plural(len(nodeids), 'test')} lost {its} worker, so {its} limits were not checked: "
        f"{and_more(nodeids, _NAMED)}"
    )


def _without_profile(nodeids: Sequence[str]) -> str:
    """Say that tests have limits, as of their class or module, and profile nothing."""
    have, profile = ("has", "profiles") if len(nodeids) == 1 else ("have", "profile")
    return (
        f"{plural(len(nodeids), 'test')} {have} limits and {profile} nothing, so these limits were "
        f"not checked: {and_more(nodeids, _NAMED)}; profile with the fixture tf_profile, or mark "
        "only the tests that do"
    )


def _unused_entries(tests: Iterable[ProfiledTest], options: Options, whole: bool) -> list[str]:
    """
    Return files with entries without a profile; `whole` is False if tests were left out, and a test
    that failed may not have made its own.
    """
    by_file: dict[str, list[ProfiledTest]] = {}
    for test in tests:
        by_file.setdefault(test.file, []).append(test)
    found = []
    for file, ran in sorted(by_file.items()):
        place = Place.of(file, options.rootdir, options.baseline_dir)
        try:
            unused = [
                key
                for key in sorted(read_structure(place.structure))
                if not any(_uses(test, key) for test in ran)
                and (whole or any(_is_of(test, key) for test in ran))
            ]
        except BaselineError:
            continue  # the tests of that file have failed with it
        if unused:
            found.append(f"{place.shown}: {', '.join(unused)}")
    return found


def _uses(test: ProfiledTest, key: str) -> bool:
    if test.outcome != "passed" and _is_of(test, key):
        return True
    return key in {entry_key(test.key, profile.name) for profile in test.profiles}


def _is_of(test: ProfiledTest, key: str) -> bool:
    """Return whether an entry is of a profile of a test."""
    return f"{key}/".startswith(f"{test.key}/")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
