"""A run as GitHub's Markdown, for a job summary or a comment on a pull request: what changed and why on top, cut to what these hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from pytest_tfperf.analysis.differences import Difference
from pytest_tfperf.metrics import METRICS, format_quantity
from pytest_tfperf.report.check_counts import CheckCounts
from pytest_tfperf.results import (
    BROKEN,
    DECIDED,
    WORST_FIRST,
    Check,
    Profile,
    ProfiledTest,
    Run,
    Verdict,
)
from pytest_tfperf.stats.signed_rank import format_ratio
from pytest_tfperf.text import elide, plural

MOST = 65_536
"""Characters that the comment of a pull request may have (github.com: "body is too long (maximum is 65536 characters)")."""

_MEASURED = (
    "step_time",
    "input_bound",
    "xla_compiles",
    "retraces",
    "eager_ops",
    "host_overhead",
    "first_step_time",
    "peak_memory",
    "throughput",
)
_WIDEST, _LONGEST = 120, 1500  # characters of a name, of a message
_AROUND = 8  # characters of the empty lines around a section's blocks
_Found = tuple[ProfiledTest, Check]


@dataclass(frozen=True, slots=True)
class _Section:
    """A title, what stands above the blocks (the head of a table), blocks, of which the last ones may be left out, and a last line."""

    title: str
    head: str
    blocks: tuple[str, ...]
    tail: str = ""

    @property
    def least(self) -> int:
        """The characters that it takes without any block."""
        return len(self.text(0))

    @property
    def whole(self) -> int:
        """The characters that all blocks take besides."""
        return self.used(len(self.blocks))

    def used(self, n_shown: int) -> int:
        """The characters that the first blocks take besides."""
        return (
            len(self.head) + _AROUND + sum(len(block) + 1 for block in self.blocks[:n_shown])
            if n_shown
            else 0
        )

    def fitting(self, room: int) -> int:
        """How many of the first blocks so many characters hold."""
        sizes = accumulate(
            (len(block) + 1 for block in self.blocks), initial=len(self.head) + _AROUND
        )
        return max(sum(size <= room for size in sizes) - 1, 0)

    def text(self, n_shown: int) -> str:
        """The section with its first blocks, and how many more there are."""
        n_more = len(self.blocks) - n_shown
        body = "\n".join(
            [self.head, *self.blocks[:n_shown]] if self.head and n_shown else self.blocks[:n_shown]
        )
        more = f"… and {n_more:,} more, left out to fit" if n_more else ""
        return "\n\n".join(filter(None, (f"## {self.title}", body, more, self.tail))) + "\n"


def render_markdown(run: Run, most: int = MOST) -> str:
    """
    A page of so many characters at most.

    First the values that are not as they were and why, then the limits that are broken, what is not decided, and what was measured. What
    does not fit is counted; each of these has its share of the room where it needs that, and what another leaves.
    """
    head = _head(run)
    sections = [
        section
        for section in (_changed(run), _why(run), _limits(run), _undecided(run), _measured(run))
        if section.blocks or section.tail
    ]
    room = most - len(head) - sum(section.least + 1 for section in sections)
    share = room // max(len(sections), 1)
    parts = [head]
    for place, section in enumerate(sections, 1):
        kept = sum(min(later.whole, share) for later in sections[place:])
        n_shown = section.fitting(room - kept)
        parts.append(section.text(n_shown))
        room -= section.used(n_shown)
    return "\n".join(parts)


def _head(run: Run) -> str:
    checks = [check for _, check in _checks(run)]
    title = f"# {_sign(check.verdict for check in checks)} tfperf: {CheckCounts.of(checks)}"
    platforms = sorted(
        {str(test.environment["platform"]) for test in run.tests if "platform" in test.environment}
    )
    facts = [
        plural(len(run.tests), "test"),
        run.created,
        run.commit and f"commit {_code(run.commit)}",
        *(_code(name) for name in platforms[:3]),
    ]
    return f"{title}\n\n{' · '.join(filter(None, facts))}\n"


def _checks(run: Run) -> Iterator[_Found]:
    """All checks with their tests, the worst on top."""
    found = [(test, check) for test in run.tests for check in test.checks]
    return iter(sorted(found, key=lambda one: WORST_FIRST.index(one[1].verdict)))


def _compared(run: Run) -> list[_Found]:
    return [(test, check) for test, check in _checks(run) if check.kind != "limit"]


def _changed(run: Run) -> _Section:
    """A row for each value that is not as it was, and for each step time."""
    compared = _compared(run)
    shown = [
        one for one in compared if one[1].verdict is not Verdict.PASS or "ratio" in one[1].detail
    ]
    n_same = len(compared) - len(shown)
    rows = [
        _row(
            _verdict(check),
            _name(test, check.profile),
            check.metric,
            *_figures(check, _unit(test, check)),
        )
        for test, check in shown
    ]
    same = (
        f"{n_same:,} {'values are as they were' if n_same > 1 else 'value is as it was'}."
        if n_same
        else ""
    )
    return _Section(
        "What changed", _table("", "test", "metric", "before", "after", "ratio"), tuple(rows), same
    )


def _unit(test: ProfiledTest, check: Check) -> str | None:
    """The unit of what a check is about, if that is a metric; of a profile that is gone, the registry's."""
    found = [
        profile.metrics
        for profile in test.profiles
        if profile.name == check.profile and check.metric in profile.metrics
    ]
    return (
        found[0][check.metric].unit
        if found
        else METRICS[check.metric].unit
        if check.metric in METRICS
        else None
    )


def _figures(check: Check, unit: str | None) -> tuple[str, str, str]:
    """Before, after, and after ÷ before with its interval."""
    detail = check.detail
    before, after = detail.get("before"), detail.get("after")
    old, new = (
        "" if number is None or unit is None else format_quantity(number, unit)
        for number in (before, after)
    )
    ratio = detail.get("ratio") or (after / before if before and after is not None else None)
    if ratio is None:
        return old, new, ""
    low, high = detail.get("low"), detail.get("high")
    interval = (
        f" ({format_ratio(low)} to {format_ratio(high)})"
        if low is not None and high is not None
        else ""
    )
    return old, new, f"{format_ratio(ratio)}{interval}"


def _why(run: Run) -> _Section:
    """What each comparison that is not good says, and what else differs, also where times changed for the better or nothing is decided."""
    found = [(test, check) for test, check in _compared(run) if check.verdict is not Verdict.PASS]
    shown = [
        (test, check)
        for test, check in found
        if check.verdict in BROKEN or check.detail.get("differences")
    ]
    return _Section("Why", "", tuple(_explained(test, check) for test, check in shown))


def _explained(test: ProfiledTest, check: Check) -> str:
    text = f"{_verdict(check)} {_name(test, check.profile)}\n\n{_fenced(check.message)}\n"
    found = [Difference(**one).line for one in check.detail.get("differences", ())]
    if not found:
        return text
    some = plural(len(found), "difference")
    return f"{text}\n<details><summary>{some}</summary>\n\n{_fenced(chr(10).join(found), len(found) * 200)}\n\n</details>\n"


def _limits(run: Run) -> _Section:
    broken = [
        (test, check)
        for test, check in _checks(run)
        if check.kind == "limit" and check.verdict in BROKEN
    ]
    return _Section(
        "Limits",
        "",
        tuple(
            f"{_verdict(check)} {_name(test, check.profile)}\n\n{_fenced(check.message)}\n"
            for test, check in broken
        ),
    )


def _undecided(run: Run) -> _Section:
    """A line for each check that is not decided and does not stand above with all that it says."""
    open_ = [(test, check) for test, check in _checks(run) if check.verdict not in DECIDED | BROKEN]
    lines = (
        f"- {check.verdict.value} {_name(test, check.profile)}: {_code(check.sentence, 300)}"
        for test, check in open_
    )
    return _Section("Not decided", "", tuple(lines))


def _measured(run: Run) -> _Section:
    """A row for each profile, with the most telling metrics that any of them knows, and the project's own."""
    profiles = [(test, profile) for test in run.tests for profile in test.profiles]
    wanted = dict.fromkeys([*_MEASURED, *(name for _, profile in profiles for name in profile.own)])
    names = [name for name in wanted if any(_cell(profile, name) != "?" for _, profile in profiles)]
    rows = (
        _row(_name(test, profile.name), test.outcome, *(_cell(profile, name) for name in names))
        for test, profile in profiles
    )
    return _Section("Measured", _table("test", "outcome", *names), tuple(rows))


def _cell(profile: Profile, name: str) -> str:
    value = profile.metrics.get(name)
    if value is None or value.number is None:
        return "?"
    low, high = (format_quantity(number, value.unit) for number in (value.low(), value.high()))
    return low if low == high else f"{low}…{high}"


def _sign(verdicts: Iterable[Verdict]) -> str:
    """A sign beside the words, for those who skim."""
    found = set(verdicts)
    return "❌" if found & BROKEN else "⚠️" if found - DECIDED else "✅"


def _verdict(check: Check) -> str:
    return f"{_sign([check.verdict])} {check.verdict.value}"


def _name(test: ProfiledTest, profile: str) -> str:
    return _code(f"{test.nodeid} [{profile}]" if profile else test.nodeid)


def _table(*titles: str) -> str:
    return f"{_row(*titles)}\n{_row(*['---'] * len(titles))}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str, widest: int = _WIDEST) -> str:
    """Text that nothing is read into (no mention, link, tag or emphasis), on one line, its middle left out where it is too long."""
    cut = elide(text, widest)
    plain = "".join(letter if letter.isprintable() else " " for letter in cut).strip() or " "
    fence = "`" * (_longest_ticks(plain) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _fenced(text: str, longest: int = _LONGEST) -> str:
    """Lines as they are."""
    cut = elide(text, longest)
    plain = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in cut)
    fence = "`" * max(3, _longest_ticks(plain) + 1)
    return f"{fence}text\n{plain}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
