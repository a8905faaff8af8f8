"""Summary of the workers of a job: who is slow, and how long the others wait for it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_tfperf.cluster.worker_processes import who
from pytest_tfperf.op_types import COLLECTIVES
from pytest_tfperf.quantities import COUNT, RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import PART_TITLES, PARTS, Column, Source, Table, Value

WORKERS = "workers"
"""Key of the table."""
_SKEW = "step_skew"
_HOST_COMPUTE, _COLLECTIVE = "host_compute", "collective"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """The mean traced step of a worker, in seconds."""

    period_s: float
    """Its period."""
    collective_s: float
    """Time in collectives, in which it also waits for the others."""
    own_s: Mapping[str, float]
    """Its other time, by part."""

    @property
    def work_s(self) -> float:
        """Time out of collectives."""
        return self.period_s - self.collective_s


def summarised(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """
    Add `step_skew` to the profiles of all workers, and a table of them to the first.

    Workers of synchronous training wait for each other in collectives, so their periods are alike.
    The slow one is the one that works longest outside of them.
    """
    shares = [_share(profile) for profile in profiles]
    skew = _skew(shares)
    found = [replace(profile, metrics={**profile.metrics, _SKEW: skew}) for profile in profiles]
    table = _table(profiles, shares)
    return (replace(found[0], tables={**found[0].tables, WORKERS: table}), *found[1:])


def _share(profile: Profile) -> _Share | None:
    """Return the mean step; None if the trace shows no step or no collective."""
    n_steps = len(profile.steps)
    if not n_steps:
        return None
    parts = {part: sum(s.parts_s.get(part, 0.0) for s in profile.steps) / n_steps for part in PARTS}
    on_host_s = min(_on_host_s(profile.tables.get("host_ops")), parts[_HOST_COMPUTE])
    collective_s = parts.pop(_COLLECTIVE) + on_host_s
    if not collective_s:
        return None
    parts[_HOST_COMPUTE] -= on_host_s
    period_s = sum(step.period_s for step in profile.steps) / n_steps
    return _Share(period_s=period_s, collective_s=collective_s, own_s=parts)


def _on_host_s(ops: Table | None) -> float:
    """Return the time of a step in collective ops of the host."""
    rows = ops.records() if ops is not None else []
    return sum(float(row["self_s"]) for row in rows if str(row["type"]).startswith(COLLECTIVES))


def _skew(shares: Sequence[_Share | None]) -> Value:
    """Return slowest ÷ median worker − 1, by their time outside of collectives."""
    known = [share for share in shares if share is not None]
    missing = [who(index) for index, share in enumerate(shares) if share is None]
    if missing:
        return Value.unknown(
            _SKEW,
            f"the trace of {', '.join(missing)} shows no collective, in which workers wait for "
            "each other",
        )
    work = [share.work_s for share in known]
    middle = statistics.median(work)
    if middle <= 0:
        return Value.unknown(_SKEW, "the workers do nothing but wait for each other")
    slowest = max(range(len(work)), key=work.__getitem__)
    return Value.of(
        _SKEW,
        max(work) / middle - 1,
        Source.TRACE,
        n_workers=len(work),
        where=_cause(known, slowest),
    )


def _cause(shares: Sequence[_Share], slowest: int) -> str:
    """Name the slowest worker, and what it does longer than the others."""
    others = [share for index, share in enumerate(shares) if index != slowest]
    own = shares[slowest]
    more = {
        part: seconds - statistics.median(other.own_s[part] for other in others)
        for part, seconds in own.own_s.items()
    }
    part = max(more, key=more.__getitem__)
    usual_s = statistics.median(other.work_s for other in others)
    return (
        f"{who(slowest)} is the slowest: {format_quantity(own.work_s, SECONDS)} of a step outside "
        f"of collectives, the others {format_quantity(usual_s, SECONDS)}; most of the difference "
        f"is {PART_TITLES[part]} (+{format_quantity(max(more[part], 0.0), SECONDS)})"
    )


def _table(profiles: Sequence[Profile], shares: Sequence[_Share | None]) -> Table:
    columns = [
        Column("worker", "worker"),
        Column("steps", "traced steps", COUNT),
        Column("period", "period", SECONDS),
        Column("input", "input", SECONDS),
        Column("collective", "in collectives", SECONDS),
        Column("work", "outside of them", SECONDS),
        Column("over_median", "more than the median", RATIO),
    ]
    work = [share.work_s for share in shares if share is not None]
    middle = statistics.median(work) if len(work) == len(shares) else 0.0
    rows = [
        (
            who(index),
            len(profile.steps),
            share.period_s if share else None,
            share.own_s["input"] if share else None,
            share.collective_s if share else None,
            share.work_s if share else None,
            share.work_s / middle - 1 if share and middle > 0 else None,
        )
        for index, (profile, share) in enumerate(zip(profiles, shares, strict=True))
    ]
    return Table.of("workers, by their traced steps", columns, rows)
