"""Put the devices of a job's hosts side by side, aligned by the names of their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_tfperf.facts.collective_waits import Waits, waits_over_hosts
from pytest_tfperf.facts.collectives import Key, Runs
from pytest_tfperf.facts.device_parts import DeviceParts
from pytest_tfperf.facts.device_planes import KINDS
from pytest_tfperf.metrics.pod import Pod
from pytest_tfperf.protobuf import Ints

StepName = tuple[str, int]
"""Name of a step, and its number among the steps of that name."""


@dataclass(frozen=True, slots=True, eq=False)
class _OfHost:
    """The runs of a collective on one host."""

    host: str
    run: Runs
    steps: Ints
    """Place of the host's steps among the common ones, -1 for others."""

    def counts(self, n_steps: int) -> Ints:
        """Return the number of matched runs in each common step."""
        place = self.steps[self.run.step]
        return np.bincount(place[place >= 0], minlength=n_steps)

    def rows(self, even: npt.NDArray[np.bool_]) -> Ints:
        """Return the matched runs in the steps that `even` selects, by step and number."""
        place = self.steps[self.run.step]
        rows = np.flatnonzero((place >= 0) & even[place])
        return rows[np.lexsort((self.run.number[rows], place[rows]))]


def job_devices(hosts: Mapping[str, Pod]) -> Pod | None:
    """
    Return the devices of all hosts, in the steps that all hosts have; None without any.

    Clocks of hosts are not compared: parts are durations, and so are waits.
    """
    known = {name: pod for name, pod in hosts.items() if pod.parts.names}
    named = [_step_names(pod.parts.steps) for pod in known.values()]
    common = [name for name in named[0] if all(name in own for own in named)] if named else []
    if len(known) < 2 or not common:
        return None
    places = {name: place for place, name in enumerate(common)}
    steps = [np.array([places.get(name, -1) for name in own]) for own in named]
    parts = _parts(known, steps, len(common))
    by_key: dict[Key, list[_OfHost]] = {}
    for (host, pod), own in zip(known.items(), steps, strict=True):
        for run in pod.runs:
            by_key.setdefault(run.key, []).append(_OfHost(host, run, own))
    found: list[Runs] = []
    waits: list[Waits] = []
    for of_hosts in by_key.values():
        one = _joined(of_hosts, len(common))
        if one.count.any():
            found.append(one)
            waits.append(waits_over_hosts(one, [each.run for each in of_hosts]))
    hidden = next((pod.hidden for pod in known.values() if pod.hidden), "")
    return Pod(parts, tuple(found), tuple(waits), hidden)


def _step_names(names: Sequence[str]) -> dict[StepName, int]:
    """Return the index of each step by its name."""
    seen: Counter[str] = Counter()
    found = {}
    for place, name in enumerate(names):
        found[name, seen[name]] = place
        seen[name] += 1
    return found


def _parts(hosts: Mapping[str, Pod], steps: Sequence[Ints], n_steps: int) -> DeviceParts:
    """Put the parts of devices together."""
    of_hosts = [pod.parts for pod in hosts.values()]
    orders = [_in_order(own, n_steps) for own in steps]
    first = of_hosts[0]
    return DeviceParts(
        names=tuple(f"{host}/{name}" for host, pod in hosts.items() for name in pod.parts.names),
        steps=tuple(first.steps[place] for place in orders[0].tolist()),
        n_steps=round(first.n_steps * n_steps / len(first.steps)),
        period_ps=np.concatenate(
            [parts.period_ps[:, order] for parts, order in zip(of_hosts, orders, strict=True)]
        ),
        parts_ps={
            kind: np.concatenate(
                [
                    parts.parts_ps[kind][:, order]
                    for parts, order in zip(of_hosts, orders, strict=True)
                ]
            )
            for kind in KINDS
        },
        working_ps=np.concatenate(
            [parts.working_ps[:, order] for parts, order in zip(of_hosts, orders, strict=True)]
        ),
        names_kinds=all(parts.names_kinds for parts in of_hosts),
    )


def _joined(of_hosts: Sequence[_OfHost], n_steps: int) -> Runs:
    """Match the runs of one collective across the hosts that ran it, in the common steps."""
    counts = np.array([one.counts(n_steps) for one in of_hosts])
    even = (counts == counts[0]).all(axis=0)
    rows = [one.rows(even) for one in of_hosts]
    first = of_hosts[0]
    return replace(
        first.run,
        devices=tuple(f"{one.host}/{name}" for one in of_hosts for name in one.run.devices),
        count=np.concatenate([one.run.count[:, _in_order(one.steps, n_steps)] for one in of_hosts]),
        total_ps=np.concatenate(
            [one.run.total_ps[:, _in_order(one.steps, n_steps)] for one in of_hosts]
        ),
        step=first.steps[first.run.step[rows[0]]],
        number=first.run.number[rows[0]],
        start_ps=np.empty((0, rows[0].size), np.int64),
        duration_ps=np.concatenate(
            [one.run.duration_ps[:, own] for one, own in zip(of_hosts, rows, strict=True)]
        ),
        one_clock=False,
    )


def _in_order(steps: Ints, n_steps: int) -> Ints:
    """Return the host's indices of the common steps, in their order."""
    return np.argsort(steps, kind="stable")[-n_steps:]
