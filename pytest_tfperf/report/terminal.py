"""A run as text for a terminal: a table of metrics, the checks that did not pass, the count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.quantities import SECONDS
from pytest_tfperf.report.check_counts import CheckCounts
from pytest_tfperf.report.results_table import profile_title, results_table
from pytest_tfperf.report.sparkline import step_line
from pytest_tfperf.report.text_layout import BOUNDLESS
from pytest_tfperf.results import BROKEN, DECIDED, Check, Verdict, worst_first
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.summary import shown_value
from pytest_tfperf.text import Labelled, and_more, elide, plural
from pytest_tfperf.values import COMPARISON

_NAME_WIDTH = 48
_NAMED_CHECKS = 3
_VERDICT = 13  # columns


class TextLine(NamedTuple):
    """One line of output."""

    text: str
    colour: str | None = None
    """`green`, `red`, `yellow`, or None."""
    deeper: int = 2
    """Columns by which its continuation is indented in a narrow terminal."""


def render(
    run: Run,
    width: int,
    verbosity: int,
    failures_shown: bool = False,
    ascii_only: bool = False,
) -> list[TextLine]:
    """
    Render a run.

    Args:
        run: The run.
        width: Columns of the terminal; with `BOUNDLESS` names are whole.
        verbosity: Below 0 only the count is shown. At 0 also the table, the checks that are not
            decided, changes, and notes on checked values. Of undecided checks with the same text
            only the first is shown. Above 0 all checks and notes are, and each step in a line.
        failures_shown: True if pytest shows the messages of failed tests. Then the checks that
            failed are not repeated.
        ascii_only: True to draw with ASCII characters only.
    """
    if verbosity < 0:
        return [count_line(run.tests)]
    lines = [TextLine(text, colour) for text, colour in results_table(run.tests, width)]
    lines += [TextLine(text) for test in run.tests for text in _comparisons(test)]
    alike = (
        Counter(_verdict_and_headline(check) for test in run.tests for check in test.checks)
        if verbosity == 0
        else Counter()
    )
    for test in run.tests:
        if verbosity == 0:
            lines += _checks(test, alike, _shown_by_pytest(test, failures_shown))
        else:
            lines += _all_checks(test)
        lines += _noise(test, verbosity > 0)
        lines += [
            TextLine(f"{profile_title(test, profile)}: {profile.ended}", "yellow")
            for profile in test.profiles
            if profile.ended
        ]
        if verbosity > 0:
            lines += _steps(test, ascii_only)
            lines += [
                TextLine(f"{profile_title(test, profile)}: {note}")
                for profile in test.profiles
                for note in profile.notes
                if note not in profile.interference and ("note", note) not in _told(test)
            ]
    if verbosity == 0:
        lines += _notes(run.tests, failures_shown)
    lines += [TextLine(f"tfperf: {sentence}", "yellow") for sentence in run.not_checked]
    return [*lines, count_line(run.tests, width if width >= BOUNDLESS else _NAME_WIDTH)]


def count_line(tests: Sequence[ProfiledTest], name_width: int = _NAME_WIDTH) -> TextLine:
    """
    `tfperf: 39 checks passed, 2 failed, 3 not decided: ...`, with their names.

    Args:
        tests: The tests.
        name_width: Characters of a test's name.
    """
    checks = [(test, check) for test in tests for check in test.checks]
    counts = CheckCounts.of(check for _, check in checks)
    text = f"tfperf: {counts if checks else 'no limits, and nothing to compare with'}"
    if counts.undecided:
        named = [
            f"{check.metric} {check.verdict.value} in {elide(test.key, name_width)}"
            for test, check in checks
            if check.verdict not in DECIDED
        ]
        text = f"{text}: {and_more(named, _NAMED_CHECKS)}"
    if n_unchecked := sum(test.n_unchecked for test in tests):
        text = f"{text}; {plural(n_unchecked, 'limit')} not checked, run without --tfperf-only"
    if any(check.verdict in BROKEN for _, check in checks):
        return TextLine(text, "red")
    return TextLine(text, "yellow" if counts.undecided or n_unchecked else "green")


def _comparisons(test: ProfiledTest) -> Iterator[str]:
    """Render each comparison of variants, in a line for each variant but the first."""
    for profile in test.profiles:
        table = profile.tables.get(COMPARISON)
        titles = [column.title for column in table.columns] if table else []
        for row in table.rows if table else ():
            if titles[1:] and row[0] == f"against {titles[1]}":
                for name, ratio in zip(titles[2:], row[2:], strict=True):
                    yield f"{test.key}: {name} is {ratio}, against {titles[1]}"


def _checks(
    test: ProfiledTest, alike: Counter[tuple[Verdict, str]], told: frozenset[Verdict]
) -> Iterator[TextLine]:
    """
    Render checks that did not pass and changes that do not gate, in one line each.

    Args:
        test: The test.
        alike: Numbers of equal checks of all tests; of undecided ones only the first is shown.
        told: Verdicts of checks that pytest has shown with the failure.
    """
    for check in worst_first(causes(test.checks)):
        if check.verdict in told:
            continue
        is_open = check.verdict not in BROKEN | DECIDED
        n_alike = alike.pop(_verdict_and_headline(check), 0) if is_open else 1
        if (check.verdict is not Verdict.PASS or check.is_shown_change) and n_alike:
            yield _first(test, check, f" and {n_alike - 1} more" if n_alike > 1 else "")


def _steps(test: ProfiledTest, ascii_only: bool) -> Iterator[TextLine]:
    """Render the step of each profile: its parts, and its timed blocks."""
    for profile in test.profiles:
        if line := step_line(profile, ascii_only):
            yield TextLine(f"{profile_title(test, profile)}: {line}")


def _all_checks(test: ProfiledTest) -> Iterator[TextLine]:
    for check in test.checks:
        yield _first(test, check)
        for line in check.message.splitlines()[1:]:
            yield TextLine(f"{'':<12} {line}", colour(check))


def _shown_by_pytest(test: ProfiledTest, failures_shown: bool) -> frozenset[Verdict]:
    return BROKEN if failures_shown and test.outcome == "failed" else frozenset()


def _told(test: ProfiledTest) -> set[Labelled]:
    """Return the lines below all checks of a test."""
    return {line for check in test.checks for line in check.details}


def _notes(tests: Sequence[ProfiledTest], failures_shown: bool) -> Iterator[TextLine]:
    """Render each note on checked values once, unless pytest has shown it with a failure."""
    titles: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        told = _shown_by_pytest(test, failures_shown)
        for check in causes(test.checks):
            for label, text in check.details:
                if label == "note" and check.verdict not in told:
                    title = f"{test.key}/{check.profile}" if check.profile else test.key
                    titles.setdefault((check.metric, text), []).append(title)
    for (metric, text), of in titles.items():
        others = f" and {len(of) - 1} more" if len(of) > 1 else ""
        yield TextLine(f"{of[0]}{others}: {metric}: {text}", "yellow")


def _noise(test: ProfiledTest, with_advice: bool) -> Iterator[TextLine]:
    """Render remarks on interference, with the step time that they concern."""
    for profile in test.profiles:
        for remark in profile.interference:
            value = profile.metrics.get("step_time")
            time = f"step_time {shown_value(value, SECONDS)}"
            shown = remark if with_advice else remark.partition(": ")[0]
            yield TextLine(f"{profile_title(test, profile)}: {time}: {shown}", "yellow")


def _first(test: ProfiledTest, check: Check, others: str = "") -> TextLine:
    """Render a check in one line: verdict, test and sentence."""
    where = f"{test.nodeid} [{check.profile}]" if check.profile else test.nodeid
    return TextLine(
        f"{check.word:<12} {where}{others}: {_verdict_and_headline(check)[1]}",
        colour(check),
        _VERDICT,
    )


def _verdict_and_headline(check: Check) -> tuple[Verdict, str]:
    return check.verdict, check.sentence.partition("\n")[0]


def colour(check: Check) -> str | None:
    """
    Return red for a check that fails a test, yellow for an undecided one, green for others.

    A change that is shown only has none.
    """
    if check.verdict in BROKEN:
        return "red"
    if check.is_shown_change:
        return None
    return "green" if check.verdict in DECIDED else "yellow"
