"""A run as GitHub's Markdown, for a job summary or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.differences.difference import Difference
from pytest_tfperf.metric_registry import METRICS, shown_unit
from pytest_tfperf.report.remedies import (
    TITLES,
    cells,
    conclusion,
    measured,
    remarks,
    tables,
    without_remedies,
)
from pytest_tfperf.report.run_text import counted, describe_other_python
from pytest_tfperf.report.text_table import compared_cells
from pytest_tfperf.results import (
    BROKEN,
    DECIDED,
    WORST_FIRST,
    Check,
    Profile,
    Verdict,
    asked_ones,
    most_telling_first,
    tone_of,
    undecided_times,
)
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.summary import shown_value, summary_columns
from pytest_tfperf.text import elide, plural

MOST = 65_536
"""
Characters that the comment of a pull request may have.

Source: github.com, "body is too long (maximum is 65536 characters)".
"""

_NAME_WIDTH, _MESSAGE_WIDTH, _SENTENCE_WIDTH, _DIFFERENCE_WIDTH = 120, 1500, 300, 200  # characters
_SIGNS = {"bad": "❌", "open": "⚠️", "good": "✅"}
_Found = tuple[ProfiledTest, Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A title, and blocks of text, of which the last ones may be left out."""

    title: str
    share: float
    """The part of the page that it may take."""
    head: str = ""
    """Lines above the blocks: the head of a table."""
    blocks: tuple[str, ...]
    tail: str = ""
    """A last line."""

    def text(self, limit: int) -> str:
        """Return the section in at most `limit` characters, and the number of blocks left out."""
        whole = self._text(len(self.blocks))
        if len(whole) <= limit:
            return whole
        room = limit - len(self._text(0)) - len(self.head) - len("\n\n")
        sizes = accumulate(len(block) + 1 for block in self.blocks)
        return self._text(sum(size <= room for size in sizes))

    def _text(self, n_shown: int) -> str:
        n_more = len(self.blocks) - n_shown
        shown = self.blocks[:n_shown]
        body = "\n".join([self.head, *shown] if self.head and shown else shown)
        more = f"… and {n_more:,} more, left out to fit" if n_more else ""
        return "\n\n".join(filter(None, (f"## {self.title}", body, more, self.tail))) + "\n"


def render_markdown(run: Run, most: int = MOST) -> str:
    """Render a run in at most `most` characters, of which each section has a fixed share."""
    found = [(test, check) for test in run.tests for check in most_telling_first(test.checks)]
    found.sort(key=lambda one: WORST_FIRST.index(one[1].verdict))
    compared = [(test, check) for test, check in found if check.kind != "limit"]
    compared.sort(key=lambda one: one[1].verdict not in DECIDED | BROKEN)
    own = {id(check) for test in run.tests for check in causes(test.checks)}
    head = _head(run, [check for _, check in found])
    sections = (
        _changed(compared),
        _why(compared, own),
        _limits(found, own),
        _remedies(run),
        _undecided(found),
        _measured(run),
        _noise(run),
    )
    shown = [section for section in sections if section.blocks or section.tail]
    room = most - len(head) - len(shown)
    texts = [section.text(int(section.share * room)) for section in shown]
    return "\n".join([head, *texts])


def _head(run: Run, checks: Sequence[Check]) -> str:
    title = f"# {_sign_of(run, checks)} tfperf: {counted(checks)}"
    if n_failed := sum(map(_failed_otherwise, run.tests)):
        title += f"; {plural(n_failed, 'test')} failed for another reason"
    if n_unchecked := sum(test.n_unchecked for test in run.tests):
        title += f"; {plural(n_unchecked, 'limit')} not checked"
    platforms = sorted(
        {str(test.environment["platform"]) for test in run.tests if "platform" in test.environment}
    )
    facts = [
        plural(len(run.tests), "test"),
        _code(run.created),
        run.commit and f"commit {_code(run.commit)}",
        *(_code(name) for name in platforms[:3]),
    ]
    others = filter(None, (describe_other_python(test.environment) for test in run.tests))
    against = "".join(f"\nAgainst {_code(one, _MESSAGE_WIDTH)}\n" for one in islice(others, 1))
    said = (*run.not_checked, undecided_times(test.checks for test in run.tests))
    missed = "".join(f"\n{_code(text, _MESSAGE_WIDTH)}\n" for text in filter(None, said))
    return f"{title}\n\n{' · '.join(filter(None, facts))}\n{missed}{against}"


def _changed(compared: Sequence[_Found]) -> _Section:
    """Return a row for each value that changed, and for each step time."""
    shown = [
        (test, check)
        for test, check in compared
        if check.verdict is not Verdict.PASS or check.is_shown_change or "ratio" in check.detail
    ]
    rows = []
    for test, check in shown:
        before, after, ratio, interval = compared_cells(check, _unit(test, check))
        change = f"{ratio} ({interval})" if ratio and interval else ratio
        name, metric = _name(test, check.profile), _code(check.metric)
        rows.append(_row(_verdict(check), name, metric, before, after, change))
    n_same = len(compared) - len(shown)
    same = f"{n_same:,} {'value is as it was' if n_same == 1 else 'values are as they were'}."
    return _Section(
        title="What changed",
        share=0.2,
        head=_table("", "test", "metric", "before", "after", "ratio"),
        blocks=tuple(rows),
        tail=same if n_same else "",
    )


def _unit(test: ProfiledTest, check: Check) -> str:
    """Return the unit of a check's metric, from its profile or, if that is gone, the registry."""
    for profile in test.profiles:
        if profile.name == check.profile and check.metric in profile.metrics:
            return shown_unit(check.metric, profile.metrics[check.metric].unit)
    return METRICS[check.metric].shown_unit if check.metric in METRICS else ""


def _why(compared: Sequence[_Found], own: Container[int]) -> _Section:
    """Return the message of each cause among the comparisons, and every list of differences."""
    blocks = []
    for test, check in compared:
        differences = check.detail.get("differences")
        if check.verdict is Verdict.PASS or not (check.verdict in BROKEN or differences):
            continue
        if id(check) in own:
            blocks.append(_message(test, check) + _differences(check))
        elif differences:  # the message is that of the cause
            blocks.append(f"{_name(test, check.profile)} {check.metric}\n{_differences(check)}")
    return _Section(title="Why", share=0.25, blocks=tuple(blocks))


def _differences(check: Check) -> str:
    found = [Difference.of(one).line for one in check.detail.get("differences", ())]
    if not found:
        return ""
    lines = _fenced("\n".join(found), len(found) * _DIFFERENCE_WIDTH)
    summary = f"<summary>{plural(len(found), 'difference')}</summary>"
    return f"\n<details>{summary}\n\n{lines}\n\n</details>\n"


def _limits(found: Sequence[_Found], own: Container[int]) -> _Section:
    broken = [
        _message(test, check)
        for test, check in found
        if check.kind == "limit" and check.verdict in BROKEN and id(check) in own
    ]
    return _Section(title="Limits", share=0.2, blocks=tuple(broken))


def _message(test: ProfiledTest, check: Check) -> str:
    message = without_remedies(check).message
    return f"{_verdict(check)} {_name(test, check.profile)}\n\n{_fenced(message)}\n"


def _remedies(run: Run) -> _Section:
    """Return a table for each profile whose remedies were tried, and the code to type."""
    blocks = []
    for test in run.tests:
        for profile, table in tables(test):
            rows = [
                _row(*map(_cell_of, cells(one)[:-1]), _code(cells(one)[-1]))
                for one in measured(table)
            ]
            head = [_table(*TITLES), *rows] if rows else []
            said = [conclusion(table).strip(), *map(str.strip, remarks(table))]
            below = _fenced("\n".join(said))
            blocks.append("\n".join([f"{_name(test, profile)}\n", *head, "", below, ""]))
    return _Section(title="Remedies that were tried", share=0.1, blocks=tuple(blocks))


def _cell_of(text: str) -> str:
    return _code(text) if text else ""


def _undecided(found: Sequence[_Found]) -> _Section:
    """Return a line for each undecided check whose message is not in another section."""
    lines = []
    for test, check in found:
        if check.verdict not in DECIDED | BROKEN and not check.is_unasked:
            sentence = _code(check.sentence.partition("\n")[0], _SENTENCE_WIDTH)
            lines.append(f"- {check.verdict.value} {_name(test, check.profile)}: {sentence}")
    return _Section(title="Not decided", share=0.1, blocks=tuple(lines))


def _measured(run: Run) -> _Section:
    """Return a row for each profile: main metrics that any of them knows, and custom ones."""
    profiles = [(test, profile) for test in run.tests for profile in test.profiles]
    wanted = summary_columns(name for _, profile in profiles for name in profile.own)
    names = [
        name for name, _ in wanted if any(_cell(profile, name) != "?" for _, profile in profiles)
    ]
    rows = []
    for test, profile in profiles:
        cells = (_cell(profile, name) for name in names)
        rows.append(_row(_name(test, profile.name), _code(test.outcome), *cells))
    head = _table("test", "outcome", *(name if name in METRICS else _code(name) for name in names))
    return _Section(title="Measured", share=0.1, head=head, blocks=tuple(rows))


def _noise(run: Run) -> _Section:
    """Return a line for each remark on interference, with the step time that it concerns."""
    lines = [
        f"- {_name(test, profile.name)}: step_time {_cell(profile, 'step_time')}: "
        f"{_code(remark, _SENTENCE_WIDTH)}"
        for test in run.tests
        for profile in test.profiles
        for remark in profile.interference
    ]
    return _Section(title="Disturbed times", share=0.05, blocks=tuple(lines))


def _cell(profile: Profile, name: str) -> str:
    value = profile.metrics.get(name)
    return "?" if value is None else shown_value(value, shown_unit(name, value.unit))


def _sign_of(run: Run, checks: Sequence[Check]) -> str:
    """Return a sign for the worst of the verdicts, of other failures, and of what was left out."""
    if any(map(_failed_otherwise, run.tests)):
        return _SIGNS["bad"]
    tone = tone_of(check.verdict for check in asked_ones(checks))
    left_out = run.not_checked or any(test.n_unchecked for test in run.tests)
    return _SIGNS["open" if left_out and tone == "good" else tone]


def _failed_otherwise(test: ProfiledTest) -> bool:
    """Return whether a test failed for another reason than its checks."""
    broken = any(check.verdict in BROKEN for check in test.checks)
    return test.outcome in ("failed", "error") and not broken


def _verdict(check: Check) -> str:
    is_plain = check.is_shown_change or check.is_unasked
    sign = "" if is_plain else f"{_SIGNS[tone_of([check.verdict])]} "
    return f"{sign}{check.word}"


def _name(test: ProfiledTest, profile: str) -> str:
    return _code(f"{test.nodeid} [{profile}]" if profile else test.nodeid)


def _table(*titles: str) -> str:
    return f"{_row(*titles)}\n{_row(*['---'] * len(titles))}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str, width: int = _NAME_WIDTH) -> str:
    """Text on one line, without mentions, links, tags or emphasis."""
    cut = elide(text, width)
    plain = "".join(letter if letter.isprintable() else " " for letter in cut).strip() or " "
    fence = "`" * (_longest_ticks(plain) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _fenced(text: str, width: int = _MESSAGE_WIDTH) -> str:
    """Lines as a code block."""
    cut = elide(text, width)
    plain = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in cut)
    fence = "`" * max(3, _longest_ticks(plain) + 1)
    return f"{fence}text\n{plain}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
