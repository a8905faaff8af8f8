"""A series of a history as the command shows it: changes of level, and the runs that count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_tfperf.baseline.level_changes import LevelChanges, looked_at
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.results import Verdict
from pytest_tfperf.run_history.queries import Series, why_not_counted
from pytest_tfperf.stats.change_points import FEWEST, FEWEST_AT_A_LEVEL
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTrend:
    """A series, its changes of level, and the runs that later runs are compared with."""

    series: Series
    """The series."""
    changes: LevelChanges
    """Its changes of level, whether the runs count or not."""
    branch: str
    """The branch whose runs count."""

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return self.series.rows[-1].unit

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return format_quantity(value, self.unit)

    @property
    def facts(self) -> str:
        """File, machine class and branch."""
        last = self.series.rows[-1]
        branch = f"branch {last.branch}" if last.branch else "without a branch"
        return f"{last.file}; machine class {last.machine_class}; {branch}"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why runs do not count; empty for each run that does."""
        return tuple(why_not_counted(row, self.branch) for row in self.series.rows)

    def sentences(self) -> Iterator[str]:
        """Yield sentences on changes of level, on regressions, and on runs that do not count."""
        n_runs = len(self.series.rows)
        if self._has_one_level:
            yield (
                f"No change of level in {looked_at(n_runs)}: a change has at least "
                f"{FEWEST_AT_A_LEVEL} runs after it, and a small one more."
            )
        else:
            yield from self.changes.sentences
        n_slower = sum(row.verdict == Verdict.REGRESSION.value for row in self.series.rows)
        if n_slower:
            have, their = ("has", "its") if n_slower == 1 else ("have", "their")
            yield (
                f"{plural(n_slower, 'run')} {have} the verdict {Verdict.REGRESSION.value} against "
                f"{their} reference."
            )
        n_left_out = sum(map(bool, self.reasons))
        if n_left_out:
            do, them = ("does", "it") if n_left_out == 1 else ("do", "them")
            yield (
                f"{n_left_out} of {plural(n_runs, 'run')} {do} not count: no later run is compared "
                f"with {them}."
            )
            if n_runs >= FEWEST:
                yield "Changes of level are those of all runs."

    def to_json(self) -> Json:
        """Return plain JSON values."""
        rows = self.series.rows
        return {
            "file": rows[-1].file,
            "test": rows[-1].test,
            "profile": rows[-1].profile,
            "machine_class": rows[-1].machine_class,
            "unit": self.unit,
            "values": list(self.series.values),
            "commits": list(self.series.commits),
            "created": [row.created.isoformat() for row in rows],
            "verdicts": [row.verdict for row in rows],
            "counts": [not why for why in self.reasons],
            "why_not": list(self.reasons),
            "changes": list(self.changes.sentences) if self.changes.points else [],
        }

    @property
    def _has_one_level(self) -> bool:
        """True if changes were looked for, and none was found."""
        values = self.series.values
        return not self.changes.points and len(values) >= FEWEST and min(values) > 0
