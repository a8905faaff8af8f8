"""The table of a run on the terminal: what tests limit or compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import RATIO, format_alike, format_factor, format_quantity
from pytest_tfperf.report.text_table import TextTable, grid
from pytest_tfperf.results import BROKEN, DECIDED, Check, Profile, Verdict
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.summary import shown_value, summary_metrics
from pytest_tfperf.text import format_slowdown, one_line
from pytest_tfperf.values import COMPARISON

_SIGNS = {"max": "≤", "min": "≥", "equal": "="}
_TITLES = ("metric", "value", "before", "change", "limit", "margin")
_INDENT = "  "
_FEWEST = 2  # columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One metric of a profile."""

    metric: str
    """Name of the metric."""
    value: str
    """Value with its unit."""
    before: str = ""
    """Value of the baseline or the git ref."""
    change: str = ""
    """Change since then."""
    limit: str = ""
    """Limit with its sign."""
    margin: str = ""
    """Distance to the limit as a share of it, or the verdict of a limit that is not kept."""
    verdict: Verdict = Verdict.PASS
    """Verdict on the metric."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of all columns."""
        return self.metric, self.value, self.before, self.change, self.limit, self.margin

    @property
    def colour(self) -> str | None:
        """Red for a broken check, yellow for an undecided one."""
        if self.verdict in BROKEN:
            return "red"
        return None if self.verdict in DECIDED else "yellow"


def results_table(tests: Iterable[ProfiledTest], width: int) -> list[tuple[str, str | None]]:
    """
    Lay out the table, with names of tests in a column or, if one is too long, above their rows.

    Args:
        tests: The profiled tests.
        width: Columns of the terminal; 0 if they do not matter. A narrow table loses columns.

    Returns:
        Lines with their colour, which may be None.
    """
    groups = [
        (profile_title(test, profile), list(_rows(test, profile)))
        for test in tests
        for profile in test.profiles
    ]
    rows = [row for _, found in groups for row in found]
    if not rows:
        return []
    shown = [n for n in range(len(_TITLES)) if any(row.cells[n] for row in rows)]
    head, body = _laid_out(rows, shown)
    name_width = max(len(title) for title, _ in [("test", ()), *groups])
    if name_width + len(_INDENT) + len(head[-1]) <= width:
        return _beside(groups, head, body, name_width)
    while len(shown) > _FEWEST and len(_INDENT) + len(head[-1]) > width > 0:
        shown.pop()
        head, body = _laid_out(rows, shown)
    return _above(groups, head, body)


def profile_title(test: ProfiledTest, profile: Profile) -> str:
    """Return the name of a profile: that of its test, and its own if it has one."""
    return one_line(f"{test.key}/{profile.name}" if profile.name else test.key)


_Groups = Sequence[tuple[str, Sequence[_Row]]]


def _laid_out(rows: Sequence[_Row], shown: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return the lines of titles and rule, and a line for each row."""
    cells = [[row.cells[n] for n in shown] for row in rows]
    return grid(TextTable([_TITLES[n] for n in shown], cells, [n > 0 for n in shown]))


def _beside(
    groups: _Groups, head: Sequence[str], body: Sequence[str], name_width: int
) -> list[tuple[str, str | None]]:
    """Put each name beside the first row of its profile."""
    rule = "-" * name_width
    lines: list[tuple[str, str | None]] = [
        (f"{name:<{name_width}}{_INDENT}{text}".rstrip(), None)
        for name, text in zip(("test", rule), head, strict=True)
    ]
    texts = iter(body)
    for name, rows in groups:
        for n, row in enumerate(rows):
            first = name if n == 0 else ""
            lines.append((f"{first:<{name_width}}{_INDENT}{next(texts)}".rstrip(), row.colour))
    return lines


def _above(
    groups: _Groups, head: Sequence[str], body: Sequence[str]
) -> list[tuple[str, str | None]]:
    """Put each name above the rows of its profile."""
    lines: list[tuple[str, str | None]] = [(f"{_INDENT}{text}".rstrip(), None) for text in head]
    texts = iter(body)
    for name, rows in groups:
        lines.append((name, None))
        lines += [(f"{_INDENT}{next(texts)}".rstrip(), row.colour) for row in rows]
    return lines


def _rows(test: ProfiledTest, profile: Profile) -> Iterator[_Row]:
    """Yield a row for each metric that is limited or changed, and for the step time."""
    checks: dict[str, list[Check]] = {}
    for check in test.checks:
        if check.profile == profile.name and _is_asked(check):
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


def _rows_of(profile: Profile, name: str, checks: Sequence[Check]) -> Iterator[_Row]:
    """Yield the rows of a metric: one, or more if it has more than one limit or comparison."""
    limits = [check for check in checks if check.kind == "limit"]
    compared = [check for check in checks if check.kind != "limit"]
    value = _value_beside(profile, name, compared)
    for n in range(max(len(limits), len(compared), 1)):
        limit = limits[n] if n < len(limits) else None
        other = compared[n] if n < len(compared) else None
        before, change = _change(profile, other) if other else ("", "")
        bound, margin = _margin(profile, limit) if limit else ("", "")
        verdicts = [check.verdict for check in (limit, other) if check]
        yield _Row(
            metric=name if n == 0 else "",
            value=value if n == 0 else "",
            before=before,
            change=change,
            limit=bound,
            margin=margin,
            verdict=min(verdicts, key=list(Verdict).index, default=Verdict.PASS),
        )


def _others(profile: Profile) -> Iterator[_Row]:
    """Yield rows of telling metrics that nobody asked for and that are not zero."""
    for name in (*summary_metrics(), *profile.own):
        value = profile.metrics.get(name)
        if value is not None and value.number and name != "step_time":
            yield _Row(metric=name, value=_cell(profile, name))


def _cell(profile: Profile, name: str) -> str:
    value = profile.metrics.get(name)  # a run file of an earlier version may lack it
    return shown_value(value, profile.registry[name].unit)


def _value_beside(profile: Profile, name: str, compared: Sequence[Check]) -> str:
    """Return the value of a metric; of a paired step time the one that the decision compares."""
    turns = [check for check in compared if check.is_of_step_time and check.kind == "against"]
    after = turns[0].detail.get("after") if turns else None
    if after is None:
        return _cell(profile, name)
    return format_quantity(after, profile.registry[name].unit)


def _change(profile: Profile, check: Check) -> tuple[str, str]:
    """Return the value before, and the change since."""
    before, after, ratio = check.detail.get("before"), check.detail.get("after"), check.ratio
    if before is None:
        return "", check.verdict.value
    row = profile.registry.get(check.metric) or METRICS[check.metric]
    shown, _ = format_alike(before, before if after is None else after, row.unit)
    if ratio is None or (check.is_of_step_time and ratio <= 0):
        return shown, ""
    if check.is_of_step_time:
        return shown, format_slowdown(ratio)
    return shown, format_factor(ratio)


def _margin(profile: Profile, check: Check) -> tuple[str, str]:
    """Return the limit with its sign, and the distance to it as a share of the limit."""
    detail = check.detail
    if not {"bound", "relation"} <= detail.keys():  # a run file of an earlier version
        return check.wanted, check.verdict.value
    unit = profile.registry[check.metric].unit
    bound, relation = detail["bound"], detail["relation"]
    shown = f"{_SIGNS[relation]} {format_quantity(bound, unit)}"
    if check.verdict is not Verdict.PASS:
        return shown, check.verdict.value
    value = profile.metrics.get(check.metric)  # a run file of another program may lack it
    if value is None or value.number is None or relation == "equal" or not bound:
        return shown, "ok"
    distance = 1 - value.high() / bound if relation == "max" else value.low() / bound - 1
    return shown, format_quantity(distance, RATIO)


_UNCHANGED = format_factor(1.0)
