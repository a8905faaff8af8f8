"""
Alignment of the hosts of a run by step, from the stored tables of steps.

A run is a folder in XProf's layout, `plugins/profile/RUN/HOST.xplane.pb`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from pytest_tfperf.fleet.fleet_store import RUNS, STEPS, FleetStore, StoreIndex
from pytest_tfperf.fleet.trace_files import run_and_host
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metrics.multi_host import IDLE_PARTS, HostWork, host_skew
from pytest_tfperf.values import Value

_WHERE = "the slowest host is "


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRun:
    """The hosts of a run, aligned by step."""

    run: str
    """Folder of the run."""
    n_hosts: int
    """Number of hosts that are aligned."""
    n_unread: int
    """Number of its hosts whose traces could not be analysed."""
    n_steps: int
    """Number of steps that all of them have."""
    step_skew: float | None
    """Work of the slowest host ÷ median − 1, None if it is unknown."""
    slowest: str
    """Name of the slowest host; empty if the skew is unknown."""
    why: str
    """Reason why the skew is unknown, else empty."""


def runs_of(contents: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return runs of several hosts: the content of each host, from that of each trace."""
    found: dict[str, dict[str, str]] = {}
    for name, content in contents.items():
        run, host = run_and_host(name)
        if run:
            found.setdefault(run, {})[host] = content
    return {run: hosts for run, hosts in found.items() if len(hosts) > 1}


def align_runs(
    store: FleetStore, index: StoreIndex, contents: Mapping[str, str]
) -> list[AlignedRun]:
    """
    Align the runs whose hosts all have a result, and store the alignments.

    Args:
        store: The store.
        index: Its objects.
        contents: Hash of the content of each trace; empty for one without a result.

    Returns:
        The runs, the one with most skew first.
    """
    found = []
    for run, hosts in runs_of(contents).items():
        if all(hosts.values()):
            sound = {host: one for host, one in hosts.items() if one in index.analysed}
            aligned = _aligned(store, run, sound, len(hosts) - len(sound))
            text = json.dumps([run, sorted(hosts.items())])
            key = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
            store.add_table(RUNS, key, [asdict(aligned)])
            found.append(aligned)
    found.sort(key=lambda one: -1.0 if one.step_skew is None else one.step_skew, reverse=True)
    return found


def skew_of(store: FleetStore, hosts: Mapping[str, str]) -> Value:
    """Return the skew of the hosts of a run, whose contents have tables of steps."""
    steps = _work_by_step(store, set(hosts.values()))
    if len(hosts) < 2 or any(content not in steps for content in hosts.values()):
        return Value.unknown("step_skew", "the steps of fewer than two hosts are stored")
    return host_skew(
        [HostWork(host=host, steps=steps[content]) for host, content in sorted(hosts.items())]
    )


def _aligned(store: FleetStore, run: str, hosts: Mapping[str, str], n_unread: int) -> AlignedRun:
    skew = skew_of(store, hosts)
    return AlignedRun(
        run=plain_strings(run),
        n_hosts=len(hosts),
        n_unread=n_unread,
        n_steps=skew.detail.get("n_steps", 0),
        step_skew=skew.number,
        slowest=plain_strings(str(skew.detail.get("where", "")).removeprefix(_WHERE)),
        why=skew.why or "",
    )


def _work_by_step(store: FleetStore, contents: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the work in each step of each content, by the name of the step, in nanoseconds."""
    idle = tuple(f"{part}_ns" for part in IDLE_PARTS)
    rows, _ = store.rows(STEPS, sorted(contents), columns=("sha256", "name", "period_ns", *idle))
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        steps, name = found.setdefault(row["sha256"], {}), row["name"]
        steps[name] = steps.get(name, 0.0) + row["period_ns"] - sum(row[part] for part in idle)
    return found
