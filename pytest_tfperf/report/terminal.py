"""A run as text for a terminal: a table of metrics, the checks that did not pass, the count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tabulate import tabulate

from pytest_tfperf.report.check_counts import CheckCounts
from pytest_tfperf.results import BROKEN, DECIDED, Check, Profile, Verdict
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.summary import UNKNOWN_CELL, shown_value, summary_columns
from pytest_tfperf.text import and_more, elide, plural

_NAME_WIDTH = (24, 48)
_NAMED_CHECKS = 3
_VERDICT = 13  # columns


class TextLine(NamedTuple):
    """One line of output."""

    text: str
    colour: str | None = None
    """`green`, `red`, `yellow`, or None."""
    deeper: int = 2
    """Columns by which its continuation is indented in a narrow terminal."""


def render(run: Run, width: int, verbosity: int) -> list[TextLine]:
    """
    Render a run.

    Args:
        run: The run.
        width: Columns of the terminal.
        verbosity: Below 0 only the count is shown. At 0 also the table, the checks that did not
            pass, and changes that do not gate. Of undecided checks with the same text only the
            first is shown. Above 0 all checks and notes are.
    """
    if verbosity < 0:
        return [count_line(run.tests)]
    lines = [TextLine(line) for line in _table(run.tests, width)]
    alike = (
        Counter(_verdict_and_headline(check) for test in run.tests for check in test.checks)
        if verbosity == 0
        else Counter()
    )
    for test in run.tests:
        lines += _checks(test, alike) if verbosity == 0 else _all_checks(test)
        lines += _noise(test, verbosity > 0)
        lines += [
            TextLine(f"{_title(test, profile)}: {profile.ended}", "yellow")
            for profile in test.profiles
            if profile.ended
        ]
        if verbosity > 0:
            lines += [
                TextLine(f"{_title(test, profile)}: {note}")
                for profile in test.profiles
                for note in profile.notes
                if note not in profile.interference
            ]
    return [*lines, count_line(run.tests)]


def count_line(tests: Sequence[ProfiledTest]) -> TextLine:
    """`tfperf: 41 checks decided (39 pass, 2 fail), 3 not decided: ...`, with their names."""
    checks = [(test, check) for test in tests for check in test.checks]
    counts = CheckCounts.of(check for _, check in checks)
    text = f"tfperf: {counts}"
    if counts.undecided:
        named = [
            f"{check.metric} {check.verdict.value} in {elide(test.key, _NAME_WIDTH[1])}"
            for test, check in checks
            if check.verdict not in DECIDED
        ]
        text = f"{text}: {and_more(named, _NAMED_CHECKS)}"
    if n_unchecked := sum(test.n_unchecked for test in tests):
        text = f"{text}; {plural(n_unchecked, 'limit')} not checked, run without --tfperf-only"
    if any(check.verdict in BROKEN for _, check in checks):
        return TextLine(text, "red")
    return TextLine(text, "yellow" if counts.undecided or n_unchecked else "green")


def _table(tests: Sequence[ProfiledTest], width: int) -> list[str]:
    rows = [(test, profile) for test in tests for profile in test.profiles]
    if not rows:
        return []
    wanted = [
        column
        for column in summary_columns(name for _, profile in rows for name in profile.own)
        if any(_cell(profile, column[0]) != UNKNOWN_CELL for _, profile in rows)
    ]
    for name_width in reversed(_NAME_WIDTH):
        for n_columns in range(len(wanted), 0, -1):
            lines = _lines(rows, wanted[:n_columns], name_width)
            if max(map(len, lines)) <= width and (
                n_columns >= min(5, len(wanted)) or name_width == _NAME_WIDTH[0]
            ):
                return lines
    return _lines(rows, wanted[:2], _NAME_WIDTH[0])


def _lines(
    rows: Sequence[tuple[ProfiledTest, Profile]],
    columns: Sequence[tuple[str, str]],
    name_width: int,
) -> list[str]:
    head = ["test", *(title for _, title in columns)]
    body = [
        [
            elide(_title(test, profile), name_width),
            *(_cell(profile, name) for name, _ in columns),
        ]
        for test, profile in rows
    ]
    return tabulate(
        body, head, "simple", disable_numparse=True, colalign=["left", *["right"] * len(columns)]
    ).splitlines()


def _cell(profile: Profile, name: str) -> str:
    value = profile.metrics.get(name)  # a run file of an earlier version may lack it
    return shown_value(value, profile.registry[name].unit)


def _checks(test: ProfiledTest, alike: Counter[tuple[Verdict, str]]) -> Iterator[TextLine]:
    """
    Render checks that did not pass and changes that do not gate, in one line each.

    Of equal undecided checks only the first is shown.
    """
    for check in test.checks:
        is_open = check.verdict not in BROKEN | DECIDED
        n_alike = alike.pop(_verdict_and_headline(check), 0) if is_open else 1
        if (check.verdict is not Verdict.PASS or check.is_shown_change) and n_alike:
            yield _first(test, check, f" and {n_alike - 1} more" if n_alike > 1 else "")


def _all_checks(test: ProfiledTest) -> Iterator[TextLine]:
    for check in test.checks:
        yield _first(test, check)
        for line in check.message.splitlines()[1:]:
            yield TextLine(f"{'':<12} {line}", colour(check))


def _noise(test: ProfiledTest, with_advice: bool) -> Iterator[TextLine]:
    """Render remarks on interference, with the step time that they concern."""
    for profile in test.profiles:
        for remark in profile.interference:
            time = f"step_time {_cell(profile, 'step_time')}"
            shown = remark if with_advice else remark.partition(": ")[0]
            yield TextLine(f"{_title(test, profile)}: {time}: {shown}", "yellow")


def _first(test: ProfiledTest, check: Check, others: str = "") -> TextLine:
    """Render a check in one line: verdict, test and sentence."""
    where = f"{test.nodeid} [{check.profile}]" if check.profile else test.nodeid
    return TextLine(
        f"{check.verdict.value:<12} {where}{others}: {_verdict_and_headline(check)[1]}",
        colour(check),
        _VERDICT,
    )


def _verdict_and_headline(check: Check) -> tuple[Verdict, str]:
    return check.verdict, check.sentence.partition("\n")[0]


def colour(check: Check) -> str:
    """Return red for a check that fails a test, yellow for an undecided one, green for others."""
    if check.verdict in BROKEN:
        return "red"
    return "green" if check.verdict in DECIDED else "yellow"


def _title(test: ProfiledTest, profile: Profile) -> str:
    return f"{test.key}/{profile.name}" if profile.name else test.key
