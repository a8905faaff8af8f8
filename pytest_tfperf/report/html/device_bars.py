"""Geometry of the devices of a host or of a job: the mean step of each by part, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.report.html.axis import seconds_text
from pytest_tfperf.report.html.before_after import Segment
from pytest_tfperf.text import elide
from pytest_tfperf.values import Table

_LONGEST = 1e9  # seconds; a damaged run file may have more
_OF_JOB = "job_device_parts"
_TABLES = (_OF_JOB, "device_parts")
_MOST_ROWS, _NAME_WIDTH, _REMARK_WIDTH = 64, 60, 200
_PARTS = {
    "device_compute": "compute",
    "output": "output",
    "device_to_device": "device to device",
    "input": "input",
    "collective": "collective",
    "waiting": "waiting in collectives",
    "other": "idle",
}
"""Parts with their titles, in the order in which they are drawn."""


@dataclass(frozen=True, slots=True)
class DeviceBar:
    """The mean step of a device."""

    name: str
    """Name of the device."""
    segments: tuple[Segment, ...]
    """Its parts from left to right."""
    label: str
    """Description for screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBars:
    """The picture."""

    title: str
    """Title of the picture."""
    bars: tuple[DeviceBar, ...]
    """Devices, the worst first."""
    parts: tuple[tuple[str, str], ...]
    """Parts in the picture with their titles."""
    n_more: int
    """Number of devices that are not drawn."""
    of_job: bool
    """True for the devices of all hosts."""
    remarks: tuple[str, ...]
    """What is not known of some devices."""


def device_bars(tables: Mapping[str, Table]) -> DeviceBars | None:
    """
    Draw the devices of the job, else those of the host; None where only one is known.

    A part that the table does not know is not drawn, and the remark below says why.
    """
    key = next(filter(tables.__contains__, _TABLES), "")
    table = tables.get(key)
    records = [] if table is None else [one for one in table.records() if _seconds(one)]
    if table is None or len(records) < 2:
        return None
    drawn = [(record, _seconds(record)) for record in records[:_MOST_ROWS]]
    longest = max(sum(seconds.values()) for _, seconds in drawn)
    used = {part for _, seconds in drawn for part in seconds}
    remarks = dict.fromkeys(str(record["remark"]) for record in records if record.get("remark"))
    return DeviceBars(
        title=elide(table.title, _REMARK_WIDTH),
        bars=tuple(_bar(record, seconds, longest) for record, seconds in drawn),
        parts=tuple((part, title) for part, title in _PARTS.items() if part in used),
        n_more=table.n_more + len(table.rows) - len(drawn),
        of_job=key == _OF_JOB,
        remarks=tuple(elide(remark, _REMARK_WIDTH) for remark in remarks)[:3],
    )


def _seconds(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each part that takes any; waiting is a part of its own."""
    known = {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LONGEST
    }
    waiting = min(known.get("waiting", 0.0), known.get("collective", 0.0))
    parts = {
        **known,
        "collective": known.get("collective", 0.0) - waiting,
        "waiting": waiting,
        "other": known.get("idle", 0.0),
    }
    return {part: parts[part] for part in _PARTS if parts.get(part, 0.0) > 0}


def _bar(record: Mapping[str, Any], seconds: Mapping[str, float], longest: float) -> DeviceBar:
    """
    Return the bar of a device.

    Args:
        record: Row of the device.
        seconds: Seconds of its parts.
        longest: Seconds of the longest step.
    """
    name = elide(str(record.get("device") or "device"), _NAME_WIDTH)
    segments, at = [], 0.0
    for part, took in seconds.items():
        text = f"{_PARTS[part]}: {seconds_text(took)}"
        left, width = round(100 * at / longest, 2), round(100 * took / longest, 2)
        segments.append(Segment(part, left, width, text))
        at += took
    return DeviceBar(name, tuple(segments), f"{name}: {', '.join(one.text for one in segments)}")
