"""
A run as text for a terminal: a table of metrics, the checks that did not pass, the count.

With these come the lines that other reports show too: counts of checks, another Python, a step as
a bar and its blocks as a sparkline.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pytest_tfperf.alike import alike, named
from pytest_tfperf.checks.roots import causes
from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity
from pytest_tfperf.report.remedies import best_of, conclusion, faster, lines_of, without_remedies
from pytest_tfperf.report.remedies import tables as remedy_tables
from pytest_tfperf.report.results_table import n_left_out, profile_title, results_table
from pytest_tfperf.report.step_verdict import parts_of
from pytest_tfperf.results import (
    BROKEN,
    DECIDED,
    Check,
    Profile,
    Verdict,
    asked_ones,
    tone_of,
    undecided_times,
)
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import BOUNDLESS, and_more, one_line, plural
from pytest_tfperf.values import COMPARISON

_OPEN = frozenset(Verdict) - DECIDED
_COLOURS = {"bad": "red", "open": "yellow", "good": "green"}
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
) -> list[TextLine]:
    """
    Render a run; with a width of `BOUNDLESS` columns the table has all rows.

    A verbosity below 0 shows what is not decided and the count. 0 adds the table, in which of many
    rows those that matter least are left out, and notes on checked values; sentences that differ in
    numbers alone are one. Above 0 all rows, checks and notes are shown, each step in a line, and
    all names. Failed checks are not repeated if pytest shows the messages of failed tests.
    """
    tests = _told_apart(run.tests)
    if verbosity < 0:
        return [*_checks(tests, _OPEN, failures_shown), count_line(tests), *_unasked(tests)]
    brief = verbosity == 0 and width < BOUNDLESS
    lines = [TextLine(*line) for line in results_table(tests, width, brief)]
    lines += [TextLine(text) for test in tests for text in _comparisons(test)]
    lines += [
        TextLine(text)
        for test in tests
        if not _shown_by_pytest(test, failures_shown)
        for text in _remedies(test, verbosity > 0)
    ]
    if verbosity == 0:
        lines += _checks(tests, BROKEN | _OPEN, failures_shown)
    for test in tests if verbosity > 0 else ():
        lines += [*_all_checks(test), *_steps(test)]
    lines += _remarks(tests, verbosity > 0)
    lines += _all_notes(tests) if verbosity > 0 else _notes(tests, failures_shown)
    lines += _left_out(tests, brief) if verbosity == 0 else ()
    lines += [TextLine(f"tfperf: {sentence}", "yellow") for sentence in run.not_checked]
    return [*lines, count_line(tests), *_unasked(tests)]


def _told_apart(tests: Sequence[ProfiledTest]) -> list[ProfiledTest]:
    """Return tests with their node id for a name where another file has a test of that name."""
    n_alike = Counter(test.key for test in tests)
    return [replace(test, key=test.nodeid) if n_alike[test.key] > 1 else test for test in tests]


def count_line(tests: Sequence[ProfiledTest]) -> TextLine:
    """Count the checks of tests by their verdicts: `tfperf: 39 checks passed, 2 failed`."""
    checks = [check for test in tests for check in test.checks]
    text = f"tfperf: {counted(checks) if checks else 'no limits, and nothing to compare with'}"
    if n_unchecked := sum(test.n_unchecked for test in tests):
        text = f"{text}; {plural(n_unchecked, 'limit')} not checked, run without --tfperf-only"
    tone = tone_of(check.verdict for check in asked_ones(checks))
    return TextLine(text, _COLOURS["open" if n_unchecked and tone == "good" else tone])


def _comparisons(test: ProfiledTest) -> Iterator[str]:
    """Render each comparison of variants, in a line for each variant but the first."""
    for profile in test.profiles:
        table = profile.tables.get(COMPARISON)
        titles = [column.title for column in table.columns] if table else []
        for row in table.rows if table else ():
            if titles[1:] and row[0] == f"against {titles[1]}":
                for name, ratio in zip(titles[2:], row[2:], strict=True):
                    yield f"{test.key}: {name} is {ratio}, against {titles[1]}"


def _remedies(test: ProfiledTest, verbose: bool) -> Iterator[str]:
    """Render what remedies gave: in a line for each profile, or all of them."""
    for profile, table in remedy_tables(test):
        title = profile_title(test, profile)
        if verbose:
            yield f"{title}: remedies that were tried"
            yield from (f"  {line}" for line in lines_of(table))
        else:
            best = best_of(table)
            gain = f"{faster(best)} as fast; " if best else ""
            yield f"{title}: {gain}{conclusion(table).strip()}"


def _checks(
    tests: Sequence[ProfiledTest], verdicts: AbstractSet[Verdict], failures_shown: bool
) -> Iterator[TextLine]:
    """Render checks with these verdicts that pytest has not shown; those alike in one line."""
    found = [
        (profile_title(test, check.profile), check)
        for test in tests
        for check in causes(test.checks)
        if check.verdict in verdicts - _shown_by_pytest(test, failures_shown)
        and not check.is_unasked
    ]
    for verdict in Verdict:
        of_verdict = [(name, check) for name, check in found if check.verdict is verdict]
        sentences = _sentences(of_verdict)
        for names, reason in alike(sentences):
            whole = sentences.get((names[0], reason), reason) if len(names) == 1 else reason
            yield _check_line(of_verdict[0][1], named(names, _names(tests)), whole)


def _unasked(tests: Sequence[ProfiledTest]) -> list[TextLine]:
    """Say that times are not decided that nobody asked for."""
    said = undecided_times(test.checks for test in tests)
    return [TextLine(said, "yellow")] if said else []


def _sentences(checks: Sequence[tuple[str, Check]]) -> dict[tuple[str, str], str]:
    """Return headlines by name and short form; metrics of one name and one reason share one."""
    by_reason: dict[tuple[str, str], list[Check]] = {}
    for name, check in checks:
        by_reason.setdefault((name, check.detail.get("why") or _headline(check)), []).append(check)
    sentences = {}
    for (name, why), (first, *others) in by_reason.items():
        short = whole = _headline(first)
        if metrics := dict.fromkeys(one.metric for one in others if one.metric != first.metric):
            short = whole = f"{', '.join([first.metric, *metrics])} are unknown: {why}"
        elif first.is_of_step_time and why != whole:  # the table shows both times
            short = f"{first.metric} is not decided: {why}"
        sentences[name, short] = whole
    return sentences


def _steps(test: ProfiledTest) -> Iterator[TextLine]:
    """Render the step of each profile: its parts, and its timed blocks."""
    for profile in test.profiles:
        if line := step_line(profile):
            yield TextLine(f"{profile_title(test, profile.name)}: {line}")


def _all_checks(test: ProfiledTest) -> Iterator[TextLine]:
    for check in map(without_remedies, test.checks):
        yield _check_line(check, profile_title(test, check.profile), _headline(check))
        for line in check.message.splitlines()[1:]:
            yield TextLine(f"{'':<12} {line}", colour(check))


def _shown_by_pytest(test: ProfiledTest, failures_shown: bool) -> frozenset[Verdict]:
    return BROKEN if failures_shown and test.outcome == "failed" else frozenset()


def _remarks(tests: Sequence[ProfiledTest], verbose: bool) -> Iterator[TextLine]:
    """Render why profiles ended, and interference with step times, with advice if verbose."""
    said = [
        (profile_title(test, profile.name), remark if verbose else remark.partition(": ")[0])
        for test in tests
        for profile in test.profiles
        for remark in (*profile.interference, *filter(None, [profile.ended]))
    ]
    return _grouped(said, tests, "yellow", verbose)


def _notes(tests: Sequence[ProfiledTest], failures_shown: bool) -> Iterator[TextLine]:
    """Render notes on checked values, unless pytest has shown them with a failure."""
    said = [
        (profile_title(test, check.profile), f"{check.metric}: {text}")
        for test in tests
        for check in causes(test.checks)
        if check.verdict not in _shown_by_pytest(test, failures_shown)
        for label, text in check.details
        if label == "note"
    ]
    return _grouped(said, tests, "yellow")


def _all_notes(tests: Sequence[ProfiledTest]) -> Iterator[TextLine]:
    """Render notes of profiles that are not below one of the checks."""
    said = [
        (profile_title(test, profile.name), note)
        for test in tests
        for profile in test.profiles
        for note in profile.notes
        if note not in profile.interference
        and not any(("note", note) in check.details for check in test.checks)
    ]
    return _grouped(said, tests, whole=True)


def _grouped(
    said: Sequence[tuple[str, str]],
    tests: Sequence[ProfiledTest],
    colour: str | None = None,
    whole: bool = False,
) -> Iterator[TextLine]:
    """Render sentences about profiles, those that differ in numbers alone as one."""
    for titles, text in alike(said):
        yield TextLine(f"{named(titles, _names(tests), whole)}: {text}", colour)


def _left_out(tests: Sequence[ProfiledTest], brief: bool) -> Iterator[TextLine]:
    """Say how many changes and rows are not shown."""
    n_changes = sum(check.is_shown_change for test in tests for check in test.checks)
    gate = "does not gate" if n_changes == 1 else "do not gate"
    changes = [f"{plural(n_changes, 'change')} that {gate}"] if n_changes else []
    n_rows = n_left_out(tests) if brief else 0
    if told := [*changes, *([plural(n_rows, "more row")] if n_rows else [])]:
        yield TextLine(f"-v shows {' and '.join(told)}")


def _names(tests: Sequence[ProfiledTest]) -> list[str]:
    return [one_line(test.key) for test in tests]


def _check_line(check: Check, names: str, sentence: str) -> TextLine:
    """Render a check in one line: verdict, tests and sentence."""
    return TextLine(f"{check.word:<12} {names}: {sentence}", colour(check), _VERDICT)


def _headline(check: Check) -> str:
    return check.sentence.partition("\n")[0]


def colour(check: Check) -> str | None:
    """Return red for a broken check, yellow for an undecided one, none for a shown change."""
    tone = tone_of([check.verdict])
    return None if check.is_shown_change and tone != "bad" else _COLOURS[tone]


# a step in one line: its parts as a bar, and its timed blocks as a sparkline

_BAR_WIDTH, _MOST_BLOCKS = 24, 24  # characters
_BAR, _LEVELS = "█▓▒░·", "▁▂▃▄▅▆▇█"
_NAMED_PARTS = 3
_FLAT = 0.02  # a range below this share of the median is shown as equal blocks


def step_line(profile: Profile) -> str:
    """Return the parts of a profile's traced steps and its timed blocks, empty without either."""
    parts = parts_of(profile)
    texts = []
    if parts:
        named = ", ".join(
            f"{part.title} {format_quantity(part.share, SHARE)}" for part in parts[:_NAMED_PARTS]
        )
        shares = [part.share for part in parts]
        texts.append(f"{share_bar(shares)} {named}")
    if profile.blocks_s:
        low, high = (format_quantity(end(profile.blocks_s), SECONDS) for end in (min, max))
        times = low if low == high else f"{low} to {high}"
        texts.append(f"{sparkline(profile.blocks_s)} blocks, {times}")
    return "; ".join(texts)


def share_bar(shares: Sequence[float], glyphs: str = _BAR) -> str:
    """Draw shares of a whole side by side, each by its glyph, and all further ones by the last."""
    lengths = lengths_of(shares, _BAR_WIDTH)
    return "".join(glyphs[min(n, len(glyphs) - 1)] * long for n, long in enumerate(lengths))


def lengths_of(shares: Sequence[float], width: int) -> list[int]:
    """Return the lengths of boxes of these shares that fill a width side by side."""
    edges = [0, *(round(width * edge / sum(shares)) for edge in accumulate(shares))]
    return [end - start for start, end in pairwise(edges)]


def sparkline(values: Sequence[float], levels: str = _LEVELS) -> str:
    """Draw values by characters for levels from low to high, of many the medians of neighbours."""
    n = min(len(values), _MOST_BLOCKS)
    bounds = [round(len(values) * place / n) for place in range(n + 1)]
    drawn = [statistics.median(values[bounds[k] : bounds[k + 1]]) for k in range(n)]
    low, high = min(drawn), max(drawn)
    if high - low <= _FLAT * abs(statistics.median(drawn)):
        return levels[0] * n
    return "".join(
        levels[min(int((value - low) / (high - low) * len(levels)), len(levels) - 1)]
        for value in drawn
    )


# lines that other reports show too


def counted(checks: Iterable[Check]) -> str:
    """Count checks by their verdicts: `39 checks passed, 2 failed, 3 not decided`."""
    verdicts = [check.verdict for check in checks]
    n_decided = sum(verdict in DECIDED for verdict in verdicts)
    n_failed = sum(verdict in (Verdict.FAIL, Verdict.REGRESSION) for verdict in verdicts)
    texts = [f"{plural(n_decided - n_failed, 'check')} passed"]
    texts += [f"{n_failed} failed"] if n_failed else []
    n_open = len(verdicts) - n_decided
    return ", ".join([*texts, f"{n_open} not decided"] if n_open else texts)


_NAMED_PACKAGES = 20  # a run file has all


def describe_other_python(environment: Mapping[str, Any], most: int = _NAMED_PACKAGES) -> str:
    """Name what a test was compared with, and the packages that differ; empty with one Python."""
    other = environment.get("against")
    if other is None:
        return ""
    python = f" ({other['python']})" if other["name"] != other["python"] else ""
    changed = [
        f"{name} {versions['before'] or 'none'} → {versions['after'] or 'none'}"
        for name, versions in other["packages"].items()
    ]
    packages = and_more(changed, most) if changed else "the same packages"
    return f"{other['name']}{python}: {packages}"
