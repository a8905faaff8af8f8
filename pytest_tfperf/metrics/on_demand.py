"""Run expensive analyses when a limit, a table, a report or a baseline asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.validity import valid
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Table, Value

NOT_COMPUTED = "not computed: no limit, report or baseline asks for it"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Expensive:
    """An analysis that takes long, left out of a profile until its findings are read."""

    analyse: Callable[[Evidence], Findings]
    """The analysis."""
    metrics: tuple[str, ...] = ()
    """All metrics that it produces."""
    tables: tuple[str, ...] = ()
    """All tables that it may produce."""

    def __call__(self, evidence: Evidence) -> Findings:
        """Run the analysis."""
        return self.analyse(evidence)

    def left_out(self) -> Findings:
        """Return its metrics as unknown."""
        return Findings(values={name: Value.unknown(name, NOT_COMPUTED) for name in self.metrics})


class OnDemand:
    """The expensive analyses of one profile that have not run."""

    def __init__(self, asked: Collection[str], evidence: Callable[[], Evidence]) -> None:
        """
        Hold the analyses until their findings are read.

        Args:
            asked: Metrics and tables that are asked for already.
            evidence: Gives the evidence anew, so that a profile does not hold its trace.
        """
        self._asked = asked
        self._evidence: Callable[[], Evidence] | None = evidence
        self._waiting: list[Expensive] = []
        self._values: dict[str, Value] = {}
        self._tables: dict[str, Table] = {}

    def can_wait(self, analysis: Expensive) -> bool:
        """Return whether no finding of an analysis is asked for now."""
        return not any(name in self._asked for name in (*analysis.metrics, *analysis.tables))

    def attached(self, profile: Profile, waiting: Sequence[Expensive]) -> Profile:
        """Return the profile with findings of the waiting analyses that come when they are read."""
        self._waiting = list(waiting)
        self._values, self._tables = dict(profile.metrics), dict(profile.tables)
        return replace(
            profile,
            metrics=Demanded(self._values, self.compute, named=True),
            tables=Demanded(self._tables, self.compute),
        )

    def compute(self, name: str | None) -> None:
        """Run the analysis that may find this metric or table; with None run all."""
        for analysis in list(self._waiting):
            if name is None or name in (*analysis.metrics, *analysis.tables):
                self._waiting.remove(analysis)
                assert self._evidence is not None  # it is there as long as an analysis waits
                evidence = self._evidence()
                found = analysis(evidence)
                self._values.update(valid(found.values, evidence))
                self._tables.update(found.tables)

    def close(self) -> None:
        """Leave out the waiting analyses for good, and free what they would have read."""
        self._waiting.clear()
        self._evidence = None


class Demanded(Mapping[str, T]):
    """Findings by name; those of waiting analyses are computed when they are read."""

    def __init__(
        self,
        known: Mapping[str, T],
        compute: Callable[[str | None], None],
        more: Mapping[str, T] | None = None,
        named: bool = False,
    ) -> None:
        """
        Read from what is known.

        Args:
            known: Findings so far; `compute` adds to it.
            compute: Runs the analysis that may find a name, or all with None.
            more: Findings from elsewhere, which go before.
            named: True if `known` has all names, so that reading names computes nothing.
        """
        self._known, self._compute, self._more = known, compute, more or {}
        self._named = named

    def __getitem__(self, name: str) -> T:
        if name in self._more:
            return self._more[name]
        self._compute(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        if not self._named and name not in self.so_far() and isinstance(name, str):
            self._compute(name)
        return name in self.so_far()

    def __iter__(self) -> Iterator[str]:
        if not self._named:
            self._compute(None)
        return iter(self.so_far())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(self.so_far())

    def so_far(self) -> dict[str, T]:
        """Return what is known, without computing anything."""
        return {**self._known, **self._more}

    def extended(self, more: Mapping[str, T]) -> Demanded[T]:
        """Return these findings and more."""
        return Demanded(self._known, self._compute, {**self._more, **more}, self._named)


def extended(found: Mapping[str, T], more: Mapping[str, T]) -> Mapping[str, T]:
    """Return findings of a profile and more, without computing anything."""
    return found.extended(more) if isinstance(found, Demanded) else {**found, **more}


def so_far(profile: Profile) -> Profile:
    """Return the profile with the findings that are known now, as plain values."""
    metrics, tables = profile.metrics, profile.tables
    return replace(
        profile,
        metrics=metrics.so_far() if isinstance(metrics, Demanded) else metrics,
        tables=tables.so_far() if isinstance(tables, Demanded) else tables,
    )
