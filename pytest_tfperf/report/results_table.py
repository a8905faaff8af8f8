"""
The table of a run: what tests limit or compare, a row for each profile and metric.

Of many rows its brief form keeps those that matter, so that it fits a screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import RATIO, format_alike, format_factor, format_quantity
from pytest_tfperf.report.text_table import TextTable, grid
from pytest_tfperf.results import BROKEN, WORST_FIRST, Check, Profile, Verdict, tone_of
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.summary import UNKNOWN_CELL, shown_value, summary_metrics
from pytest_tfperf.text import BOUNDLESS, one_line
from pytest_tfperf.values import COMPARISON

_SIGNS = {"max": "≤", "min": "≥", "equal": "="}
_COLUMNS = ("metric", "before", "value", "change", "limit", "result")
_DROPPED = ("limit", "change", "before", "result")
"""Columns that a narrow table loses, in this order."""
_INDENT = "  "
_MOST_ROWS = 16
"""Rows that fit a screen of 24 lines, with what stands above and below them."""
_UNCHANGED = format_factor(1.0)
_DOUBLED, _IN_WHOLE = 1.95, 9.95
"""The ratio that is no percentage any more, and the percentage without digits after the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One metric of a profile."""

    metric: str
    before: str = ""
    """Value of the baseline or the git ref."""
    value: str
    change: str = ""
    """Change since then."""
    limit: str = ""
    """Limit with its sign."""
    result: str = ""
    """Verdict, or of a limit that is kept the distance to it as a share of it."""
    verdict: Verdict = Verdict.PASS
    """Verdict on the metric."""
    matters: bool = False
    """Whether the table of many tests has it: a step time, or a cause that is no PASS."""

    @property
    def colour(self) -> str | None:
        """Red for a broken check, yellow for an undecided one."""
        return {"bad": "red", "open": "yellow"}.get(tone_of([self.verdict]))


_Groups = Sequence[tuple[str, Sequence[_Row]]]
"""Titles of profiles with their rows."""


def results_table(
    tests: Iterable[ProfiledTest], width: int, brief: bool = False
) -> list[tuple[str, str | None]]:
    """
    Lay out the table in lines with their colours. Without a width it may be as wide as it needs.

    A narrow table loses columns; a name that leaves no room for them stands above its rows. A brief
    table leaves out changes that do not gate and, of more rows than fit a screen, those that matter
    least.
    """
    shown, n_more = _groups(tests, brief)
    groups = [(title, list(_named_once(rows))) for title, rows in shown if rows]
    rows = [row for _, found in groups for row in found]
    if not rows:
        return []
    columns = [name for name in _COLUMNS if any(getattr(row, name) for row in rows)]
    head, body = _laid_out(rows, columns)
    longest = max(len(title) for title, _ in groups)
    for name in _DROPPED:
        beside = longest if n_more and name == "limit" else 0  # a line a test fits a screen
        if name in columns and beside + len(_INDENT) + len(head[-1]) > width > 0:
            columns.remove(name)
            head, body = _laid_out(rows, columns)
    room = width - len(_INDENT) - len(head[-1]) if width else BOUNDLESS
    fitting = [n for title, _ in groups if (n := max(len(title), len("test"))) <= room]
    n = max(fitting, default=0)
    names = ("test", "-" * n) if fitting else ("", "")
    lines: list[tuple[str, str | None]] = [
        (f"{name:<{n}}{_INDENT}{text}".rstrip(), None)
        for name, text in zip(names, head, strict=True)
    ]
    texts = iter(body)
    for title, found in groups:
        is_above = len(title) > n
        lines += [(title, None)] if is_above else []
        for place, row in enumerate(found):
            name = "" if is_above or place else title
            lines.append((f"{name:<{n}}{_INDENT}{next(texts)}".rstrip(), row.colour))
    return lines


def profile_title(test: ProfiledTest, profile: str) -> str:
    """Return the name of a profile: that of its test, and its own if it has one."""
    return one_line(f"{test.key}/{profile}" if profile else test.key)


def n_left_out(tests: Iterable[ProfiledTest]) -> int:
    """Return how many rows the brief table leaves out since they are too many."""
    return _groups(tests, brief=True)[1]


def _groups(tests: Iterable[ProfiledTest], brief: bool) -> tuple[_Groups, int]:
    """Return the rows of each profile, at least one if it has any, and how many are left out."""
    groups = [
        (profile_title(test, profile.name), list(_rows(test, profile, brief)))
        for test in tests
        for profile in test.profiles
    ]
    n_rows = sum(len(rows) for _, rows in groups)
    if not brief or n_rows <= _MOST_ROWS:
        return groups, 0
    kept = [(title, [row for row in rows if row.matters] or rows[:1]) for title, rows in groups]
    return kept, n_rows - sum(len(rows) for _, rows in kept)


def _named_once(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Yield rows, of which further ones of a metric are without its name and value."""
    for n, row in enumerate(rows):
        is_further = n > 0 and rows[n - 1].metric == row.metric
        yield replace(row, metric="", value="") if is_further else row


def _laid_out(rows: Sequence[_Row], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines of titles and rule, and a line for each row."""
    titles = ["after" if name == "value" and "before" in columns else name for name in columns]
    cells = [[getattr(row, name) for name in columns] for row in rows]
    return grid(TextTable(titles, cells, [name != "metric" for name in columns]))


def _rows(test: ProfiledTest, profile: Profile, brief: bool) -> Iterator[_Row]:
    """Yield a row for each metric that is limited or changed, and for the step time."""
    checks: dict[str, list[Check]] = {}
    for check in test.checks:
        is_left_out = brief and check.is_shown_change
        if check.profile == profile.name and _is_asked(check) and not is_left_out:
            checks.setdefault(check.metric, []).append(check)
    seen = [name for name in profile.registry if name in checks]
    is_variant = any(profile.name in titles for titles in _variants(test))
    step_time = profile.metrics.get("step_time")
    timed = step_time is not None and step_time.number is not None
    if "step_time" not in checks and timed and not is_variant:
        seen.insert(0, "step_time")
    for name in seen:
        yield from _rows_of(profile, name, checks.get(name, []))
    if not checks:
        yield from _others(profile)


def _variants(test: ProfiledTest) -> Iterator[tuple[str, ...]]:
    """Yield the variants of each comparison, whose own lines show times measured in turns."""
    for profile in test.profiles:
        table = profile.tables.get(COMPARISON)
        if table is not None:
            yield tuple(column.title for column in table.columns[1:])


def _is_asked(check: Check) -> bool:
    """Return whether the table shows a check: a limit, a step time or a change."""
    if check.kind == "limit" or check.is_of_step_time:
        return True
    if check.ratio is not None and check.verdict is Verdict.PASS:
        return format_factor(check.ratio) != _UNCHANGED
    return check.detail.get("before") != check.detail.get("after")


def _rows_of(profile: Profile, name: str, checks: Sequence[Check]) -> list[_Row]:
    """Return the rows of a metric: one, or more if it has more than one limit or comparison."""
    limits = [check for check in checks if check.kind == "limit"]
    compared = [check for check in checks if check.kind != "limit"]
    value = _value_beside(profile, name, compared)
    rows = []
    for limit, other in zip_longest(limits, compared) if checks else [(None, None)]:
        is_kept = [check.verdict is Verdict.PASS for check in (limit, other) if check]
        apart = any(is_kept) and not all(is_kept)  # the verdict of which of both?
        pairs = [(None, other), (limit, None)] if apart and limit and other else [(limit, other)]
        rows += [_row(profile, name, value, *pair) for pair in pairs]
    first = replace(rows[0], matters=rows[0].matters or name == "step_time")
    return [first, *rows[1:]]


def _row(profile: Profile, name: str, value: str, limit: Check | None, other: Check | None) -> _Row:
    """Return the row of a metric with a limit, a comparison, both or none."""
    both = [check for check in (limit, other) if check]
    verdict = min((check.verdict for check in both), key=WORST_FIRST.index, default=None)
    is_root = any(check.verdict is not Verdict.PASS and not check.follows for check in both)
    before, change = _change(profile, other) if other else ("", "")
    return _Row(
        metric=name,
        before=before,
        value=value,
        change=change,
        limit=_limit(profile, limit) if limit else "",
        result=_result(profile, verdict, limit, other),
        verdict=verdict or Verdict.PASS,
        matters=is_root and (verdict in BROKEN or value != UNKNOWN_CELL),
    )


def _others(profile: Profile) -> Iterator[_Row]:
    """Yield rows of telling metrics that nobody asked for and that are not zero."""
    for name in (*summary_metrics(), *profile.own):
        value = profile.metrics.get(name)
        if value is not None and value.number and name != "step_time":
            yield _Row(metric=name, value=_cell(profile, name))


def _cell(profile: Profile, name: str) -> str:
    value = profile.metrics.get(name)  # a run file of another program may lack it
    return shown_value(value, profile.registry[name].shown_unit)


def _value_beside(profile: Profile, name: str, compared: Sequence[Check]) -> str:
    """Return the value of a metric; of a paired step time the one that the decision compares."""
    turns = [check for check in compared if check.is_of_step_time and check.kind == "against"]
    after = turns[0].detail.get("after") if turns else None
    if after is None:
        return _cell(profile, name)
    return format_quantity(after, profile.registry[name].shown_unit)


def _change(profile: Profile, check: Check) -> tuple[str, str]:
    """Return the value before, and the change since."""
    before, after, ratio = check.detail.get("before"), check.detail.get("after"), check.ratio
    if before is None:
        return "", ""
    row = profile.registry.get(check.metric) or METRICS[check.metric]
    shown, _ = format_alike(before, before if after is None else after, row.shown_unit)
    return shown, "" if ratio is None or ratio <= 0 else _relative(ratio)


def _relative(ratio: float) -> str:
    """Write a ratio as a change: `+23 %`, `-4.8 %`, and from a doubling on `× 17.5`, `÷ 3`."""
    percent = round(100 * (ratio - 1), 2)
    if ratio >= _DOUBLED:
        return format_factor(ratio)
    if ratio <= 1 / _DOUBLED:
        return f"÷ {format_factor(1 / ratio).removeprefix('× ')}"
    if not percent:
        return "0 %"
    return f"{percent:+.2g} %" if abs(percent) < _IN_WHOLE else f"{percent:+.0f} %"


def _limit(profile: Profile, check: Check) -> str:
    """Return the limit with its sign."""
    detail = check.detail
    if not {"bound", "relation"} <= detail.keys():  # a run file of another program
        return check.wanted
    bound = format_quantity(detail["bound"], profile.registry[check.metric].shown_unit)
    return f"{_SIGNS[detail['relation']]} {bound}"


def _result(
    profile: Profile, verdict: Verdict | None, limit: Check | None, other: Check | None
) -> str:
    """Return the worst verdict, or of a limit that is kept how much of it is left."""
    if verdict is not Verdict.PASS:
        is_unasked = other is not None and other.is_unasked and verdict is other.verdict
        return other.word if other and is_unasked else verdict.value if verdict else ""
    if limit is None:
        return "" if other is None or other.is_shown_change else "ok"
    value, bound = profile.metrics.get(limit.metric), limit.detail.get("bound")
    relation = limit.detail.get("relation", "equal")
    # a run file of another program may lack the value
    if value is None or value.number is None or relation == "equal" or not bound:
        return "ok"
    distance = bound - value.high() if relation == "max" else value.low() - bound
    return f"{format_quantity(distance / abs(bound), RATIO)} left"
