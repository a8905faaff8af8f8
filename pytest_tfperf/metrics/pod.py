"""
Compare the devices of a host, or of all hosts of a job: skew, parts of the step, collectives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_tfperf.facts.collectives import DONE, TRANSFERS, Runs, Waits, find_waits, synchronous
from pytest_tfperf.facts.device_ops import NO_CATEGORY, names_kinds
from pytest_tfperf.facts.parts import DeviceParts
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.shares import why_collectives_hidden
from pytest_tfperf.quantities import BYTES, COUNT, RATIO, SECONDS, SHARE
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.values import Column, Source, Table, Value

MOST_DEVICES = 64
"""Devices of a table, the worst first."""
_PARTS = (
    ("device_compute", "compute"),
    ("output", "output"),
    ("device_to_device", "device to device"),
    ("collective", "collective"),
    ("input", "input"),
)
_DEVICE_COLUMNS = (
    Column("device", "device"),
    Column("step", "step", SECONDS),
    *(Column(key, title, SECONDS) for key, title in _PARTS),
    Column("idle", "idle", SECONDS),
    Column("working", "own work", SECONDS),
    Column("over_median", "more than the median", RATIO),
    Column("waiting", "waiting", SECONDS),
    Column("last", "enters last", SHARE),
    Column("remark", "remark"),
)
_COLLECTIVE_COLUMNS = (
    Column("collective", "collective"),
    Column("kind", "kind"),
    Column("program", "program"),
    Column("groups", "replica groups"),
    Column("bytes", "bytes", BYTES),
    Column("devices", "devices", COUNT),
    Column("runs", "runs a step", COUNT),
    Column("duration", "one run", SECONDS),
    Column("waiting", "waiting", SECONDS),
    Column("waiting_share", "share of waiting", SHARE),
    Column("step", "a step", SECONDS),
    Column("delay", "delay a step", SECONDS),
    Column("last", "enters last"),
    Column("last_share", "so often", SHARE),
    Column("remark", "remark"),
)
_ONE_NAME = "waiting is unknown: several devices of the trace have one name"


def analyse_skew(evidence: Evidence) -> Findings:
    """Find how unevenly the devices work."""
    if evidence.trace is None:
        return evidence.untraced("step_skew")
    skew = step_skew(evidence.device_parts)
    if skew.number is not None and not all(map(names_kinds, accelerators(evidence.trace))):
        skew = Value.unknown("step_skew", NO_CATEGORY)
    return Findings(values={"step_skew": skew})


def step_skew(parts: DeviceParts) -> Value:
    """
    Return slowest ÷ median over the devices − 1, the median over the steps, of their own work
    without collectives, which make all devices equally long.
    """
    n_devices = len(parts.names)
    if n_devices < 2:
        worked = f"{n_devices or 'no'} device of this host worked in the steps"
        logical = "" if n_devices else ", and a trace does not tell logical CPUs apart"
        return Value.unknown("step_skew", f"{worked}{logical}; it takes two to compare")
    middle = np.median(parts.working_ps, axis=0)
    known = middle > 0
    if not known.any():
        return Value.unknown("step_skew", "most devices did no work of their own in the steps")
    skew = parts.working_ps.max(axis=0)[known] / middle[known] - 1
    slowest = parts.names[int(parts.working_ps.sum(axis=1).argmax())]
    detail = (
        {"low": float(skew.min()), "high": float(skew.max())} if skew.min() != skew.max() else {}
    )
    return Value.of(
        "step_skew",
        float(np.median(skew)),
        Source.TRACE,
        n_devices=n_devices,
        slowest=slowest,
        **detail,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """The devices of a host, or of a job."""

    parts: DeviceParts
    runs: tuple[Runs, ...]
    """Their collectives."""
    waits: tuple[Waits, ...]
    hidden: str = ""
    """Reason why the trace may not show their collectives; empty if it does."""

    def without_starts(self) -> Pod:
        """Return the devices without what other hosts cannot compare."""
        return replace(
            self, runs=tuple(replace(one, start_ps=one.start_ps[:0]) for one in self.runs)
        )


def analyse(evidence: Evidence) -> Findings:
    """Find what each device did in a step, and which of them the others waited for."""
    if evidence.trace is None:
        return Findings()
    pod, n_outside = find_pod(evidence), evidence.collectives[1]
    note = (
        f"{plural(n_outside, 'run')} of collectives lie outside of the steps, and are in no table"
    )
    return Findings(tables=pod_tables(pod), notes=(note,) if n_outside and not pod.runs else ())


def find_pod(evidence: Evidence) -> Pod:
    """Return the devices of a trace."""
    runs, _ = evidence.collectives
    hidden = why_collectives_hidden(evidence) if evidence.trace else None
    return Pod(evidence.device_parts, tuple(runs), tuple(map(find_waits, runs)), hidden or "")


def pod_tables(pod: Pod, prefix: str = "", scope: str = "") -> dict[str, Table]:
    """Return the tables of devices and of collectives, as far as there are any."""
    tables = {}
    if pod.parts.names:
        tables[f"{prefix}device_parts"] = _device_table(pod, scope)
    if pod.runs:
        tables[f"{prefix}collectives"] = _collective_table(pod, scope)
    return tables


def _device_table(pod: Pod, scope: str) -> Table:
    """
    Tabulate devices by parts of their mean step, first that which waits least, since the others
    wait for it (its work takes long or it starts late), or that works longest if waits are unknown.
    """
    parts, n_steps = pod.parts, max(pod.parts.n_steps, 1)
    work, waiting = parts.working_ps.sum(axis=1), _waiting(pod)
    median = float(np.median(work))
    records: list[dict[str, Any]] = []
    for place, name in enumerate(parts.names):
        spent = {kind: int(parts.parts_ps[kind][place].sum()) for kind, _ in _PARTS}
        step_ps = int(parts.period_ps[place].sum())
        idle_s = max(step_ps - sum(spent.values()), 0) * 1e-12 / n_steps
        shown: dict[str, float | None] = {
            kind: picoseconds * 1e-12 / n_steps for kind, picoseconds in spent.items()
        }
        shown["working"] = float(work[place]) * 1e-12 / n_steps
        shown["over_median"] = float(work[place]) / median - 1 if median else None
        if not parts.names_kinds:
            shown = dict.fromkeys(shown)
        elif pod.hidden:
            shown["collective"] = None
        records.append(
            {
                "device": name,
                "step": step_ps * 1e-12 / n_steps,
                **shown,
                "idle": idle_s,
                **waiting[place],
            }
        )
    by_waiting = all(one["last"] is not None and not one["remark"] for one in waiting)
    keys = [one["waiting"] for one in waiting] if by_waiting else -work
    order = np.argsort(keys, kind="stable").tolist()
    rows = [records[place] for place in order]
    title = f"parts of a step by device{scope}"
    if parts.names_kinds and keys[order[0]] != keys[order[-1]]:
        worst, best = ("waits least", "longest") if by_waiting else ("works longest", "shortest")
        title += f": {rows[0]['device']} {worst}, {rows[-1]['device']} {best}"
    return Table.of_records(title, _DEVICE_COLUMNS, rows, MOST_DEVICES)


def _waiting(pod: Pod) -> list[dict[str, Any]]:
    """Return each device's waiting in a step, at most its exposed collectives, and a remark."""
    parts = pod.parts
    places = {name: place for place, name in enumerate(parts.names)}
    alike = _ONE_NAME if len(places) < len(parts.names) else ""
    if remark := pod.hidden or alike or ("" if parts.names_kinds else NO_CATEGORY):
        return [{"waiting": None, "last": None, "remark": remark} for _ in parts.names]
    waited = np.zeros_like(parts.period_ps)
    n_last, n_runs, n_known, n_all = (np.zeros(len(places), np.int64) for _ in range(4))
    remarks: dict[int, str] = {}
    for run, waits in zip(pod.runs, pod.waits, strict=True):
        if synchronous(run.kind) in TRANSFERS:
            continue  # no part of a collective
        rows = np.array([places.get(name, -1) for name in run.devices])
        seen = rows >= 0  # not of devices whose events take no time
        rows = rows[seen]
        n_all[rows] += 1
        if waits.remark:
            remarks = {**dict.fromkeys(rows.tolist(), waits.remark), **remarks}
        if waits.wait_ps is not None and waits.last is not None:
            np.add.at(waited, (rows[:, None], run.step[None, :]), waits.wait_ps[seen])
            n_known[rows] += 1
            n_runs[rows] += run.step.size
            n_last[rows] += waits.last[seen].sum(axis=1)
    exposed = np.minimum(waited, parts.parts_ps["collective"]).sum(axis=1)
    seconds = exposed * 1e-12 / max(parts.n_steps, 1)
    found: list[dict[str, Any]] = []
    for place in range(len(places)):
        n_unknown, known = int(n_all[place] - n_known[place]), bool(n_known[place])
        note = remarks.get(place)
        if n_unknown and known:
            of = plural(int(n_all[place]), "collective")
            note = f"waiting: at least, since it is unknown in {n_unknown} of {of}"
        is_told = seconds[place] > 0 if note else True  # at least 0 tells nothing
        found.append(
            {
                "waiting": float(seconds[place]) if is_told else None,
                "last": float(n_last[place] / n_runs[place]) if n_runs[place] else None,
                "remark": note,
            }
        )
    return found


def _collective_table(pod: Pod, scope: str) -> Table:
    """Tabulate the collectives by the time of a step that they take on a device."""
    n_steps = max(pod.parts.n_steps, 1)
    records = [
        _collective(run, waits, n_steps) for run, waits in zip(pod.runs, pod.waits, strict=True)
    ]
    records.sort(key=lambda one: -one["step"])
    return Table.of_records(f"collectives by time in a step{scope}", _COLLECTIVE_COLUMNS, records)


def _collective(run: Runs, waits: Waits, n_steps: int) -> dict[str, Any]:
    """Return a collective's row; the delay is a device's time in an asynchronous one's done op."""
    function, name = run.key
    n_devices, n_runs = len(run.devices), int(run.count.sum())
    step_s = float(run.total_ps.sum()) * 1e-12 / n_devices / n_steps
    remarks = [waits.remark]
    if run.facts.bytes is None:
        remarks.append(f"bytes: {_no_bytes(run)}")
    record = {
        "collective": name,
        "kind": run.kind if run.kind != name else None,
        "program": function or None,
        "groups": run.facts.groups or None,
        "bytes": run.facts.bytes,
        "devices": n_devices,
        "runs": n_runs / n_devices / n_steps,
        "duration": float(run.total_ps.sum()) * 1e-12 / n_runs,
        "step": step_s,
        "delay": step_s if run.kind.endswith(DONE) and not run.blocks else None,
        **dict.fromkeys(("waiting", "waiting_share", "last", "last_share")),
        "remark": "; ".join(filter(None, remarks)) or None,
    }
    if waits.wait_ps is not None and waits.last is not None:
        waited, took = float(waits.wait_ps.sum()), float(run.duration_ps.sum())
        n_last = waits.last.sum(axis=1)
        latest = int(n_last.argmax())
        is_told = waited > 0 or not waits.remark  # at least 0 tells nothing
        record |= {
            "waiting": waited * 1e-12 / run.duration_ps.size if is_told else None,
            "waiting_share": waited / took if took and is_told else None,
            "last": run.devices[latest] if n_last.any() else None,
            "last_share": float(n_last[latest]) / run.step.size if n_last.any() else None,
        }
    return record


def _no_bytes(run: Runs) -> str:
    return (
        "the op names no array" if run.facts.opcode != run.key[1] else "the trace has no HLO of it"
    )
