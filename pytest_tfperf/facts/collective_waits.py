"""
Measure how long each device waits in a collective for the last of its group.

On one host, GPUs share a clock: a device waits from its own start to the last start of its group,
and no longer than its own op. Clocks of TPU cores and of other hosts differ, so their times are
never compared. There durations tell: no device leaves a collective before all have entered, and
they leave together. So the shortest op of a group is that of the device that entered last, and
what others take longer is waiting.

Three things make a wait unknown, and none of them is guessed: whom a device waits for (groups, or
the places of devices in them), an op that is a start or a done alone, and fewer than two devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.collectives import Runs
from pytest_tfperf.hlo.collective_ops import JOINS, members, synchronous
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import plural
from pytest_tfperf.trace.stats import Mask

_UNEQUAL = "the devices ran it unequally often in each step"


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The waits in the matched runs of one collective."""

    wait_ps: Ints | None
    """Picoseconds of each device in each run, shape (n_devices, n_runs); None if unknown."""
    last: Mask | None
    """True where others waited for the device, of the same shape; None if unknown."""
    remark: str
    """Reason why they are unknown, or are at least these; empty if they are known."""


def find_waits(runs: Runs) -> Waits:
    """Find the waits of a collective on one host."""
    groups = groups_of(runs)
    if isinstance(groups, str):
        return Waits(None, None, f"waiting: {groups}")
    wait, last = np.zeros_like(runs.duration_ps), np.zeros(runs.duration_ps.shape, bool)
    for group in groups:
        duration = runs.duration_ps[group]
        if runs.one_clock:
            start = runs.start_ps[group]
            wait[group] = np.clip(start.max(axis=0) - start, 0, duration)
        else:
            wait[group] = duration - duration.min(axis=0)
        last[group] = _last(wait[group])
    return Waits(wait, last, _bound(runs))


def groups_of(runs: Runs) -> list[list[int]] | str:
    """
    Return the groups as indices into the devices, or the reason why they are unknown.

    Global ids of HLO are devices only by the program's device assignment, and its ids are devices
    of the trace only if they are the numbers of all of them.
    """
    if why := _why_unknown(runs):
        return why
    if len(runs.devices) < 2:
        return "one device of this host ran it, and it takes two to compare"
    found = members(runs.facts.groups)
    everyone = list(range(len(runs.devices)))
    if found is not None and len(found) < 2:
        return [everyone]
    ordinals = [int(name.rpartition(":")[2]) for name in runs.devices]
    n_ids = sum(map(len, found or ()))
    if found is None or n_ids != len(runs.assignment) or sorted(runs.assignment) != ordinals:
        return "the trace does not tell which device is in which of its groups"
    if sorted(one for group in found for one in group) != list(range(n_ids)):
        return "its groups do not name each device once"
    places = {ordinal: place for place, ordinal in enumerate(ordinals)}
    return [[places[runs.assignment[one]] for one in group] for group in found]


def waits_over_hosts(runs: Runs, hosts: Sequence[Runs]) -> Waits:
    """
    Find the waits of a collective on several hosts, by durations.

    Args:
        runs: Its runs that all hosts have, their devices one after the other.
        hosts: Its runs on each host.
    """
    why = _why_unknown_over(hosts)
    if why or not runs.step.size:
        return Waits(None, None, f"waiting: {why or _UNEQUAL}")
    wait = runs.duration_ps - runs.duration_ps.min(axis=0)
    return Waits(wait, _last(wait), _bound(runs))


def _last(wait: Ints) -> Mask:
    """Return the devices that did not wait, in the runs in which another did."""
    last: Mask = (wait == 0) & (wait.max(axis=0) > 0)
    return last


def _why_unknown_over(hosts: Sequence[Runs]) -> str:
    """Return why it is unknown who waits for whom over hosts; empty if all join one group."""
    whys = [why for runs in hosts if (why := _why_unknown(runs))]
    if whys:
        return whys[0]
    groups = {runs.facts.groups for runs in hosts}
    if len(groups) > 1:
        return "its replica groups differ between the hosts"
    found = members(groups.pop())
    if found is None or len(found) > 1:
        return "the traces do not tell which device is in which of its groups"
    return ""


def _bound(runs: Runs) -> str:
    """Return why known waits are at least that; empty if they are exact."""
    n_devices, n_runs = len(runs.devices), int(runs.count.sum())
    n_ids = sum(map(len, members(runs.facts.groups) or ())) or len(runs.assignment)
    if n_ids > n_devices:
        return f"waiting: at least, since {n_devices} of its {plural(n_ids, 'device')} are traced"
    n_unmatched = n_runs - runs.duration_ps.size
    if n_unmatched:
        return f"waiting: at least, since {n_unmatched} of {n_runs} runs have no counterpart"
    return ""


def _why_unknown(runs: Runs) -> str:
    """Return why it is unknown who waits for whom; empty if the groups tell."""
    if not runs.facts.groups:
        return "the trace names no replica groups of it"
    if synchronous(runs.kind) not in JOINS:
        return "a device waits for its own partner alone"
    if not runs.blocks:
        return "it is asynchronous, and its ops do not show when a device entered"
    return "" if runs.step.size else _UNEQUAL
