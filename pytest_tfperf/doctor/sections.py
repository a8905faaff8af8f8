"""The sections that `tfperf doctor` prints: the machine, the profiler and the conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from pytest_tfperf.doctor.profiler_check import SelfCheck
from pytest_tfperf.results import FORMAT
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

_NEEDS_STOPPING = (
    "--tfperf-against needs SIGSTOP: Linux or macOS, in a sandbox that lets signals through"
)
_PINNING_HELPS = (
    "a Linux machine with two cores or more: "
    "pinned to the same cores, two processes of the same code differ less"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the report."""

    key: str
    """Its key in the JSON report."""
    title: str
    """Title for the terminal."""
    data: Json
    """Content of the JSON report."""
    titles: Sequence[str] = ()
    """Titles of the columns, if they have any; the first is of the rows' names."""
    rows: Sequence[Sequence[str]] = ()
    """A name and values, or one value for each title."""
    lines: Sequence[str] = ()
    """Further lines for the terminal."""
    advice: Sequence[str] = ()
    """What to do where something is wrong."""
    failed: bool = False
    """True if the machine cannot do what is needed."""


def sections_json(sections: Iterable[Section]) -> Json:
    """Return `{"format", "good", <key of a section>: {..., "failed", "advice"}}`."""
    report: Json = {"format": FORMAT, "good": True}
    for section in sections:
        report["good"] = report["good"] and not section.failed
        verdict = {"failed": section.failed, "advice": list(section.advice)}
        report[section.key] = {**section.data, **verdict}
    return report


def machine_section(environment: Json, others: Mapping[str, str] = MappingProxyType({})) -> Section:
    """
    Return the machine class, the platform and the setting of `description.describe`.

    Args:
        environment: That description.
        others: A remark on each further framework, by its name.
    """
    set_values = [f"{name} {value}" for name, value in environment["setting"].items() if value]
    rows = [(name, str(value)) for name, value in environment["machine"].items()]
    rows += [("platform", environment["platform"]), ("setting", ", ".join(set_values))]
    rows += others.items()
    return Section(
        key="machine",
        title="machine class (times are comparable within it)",
        rows=rows,
        data={**environment, "others": dict(others)},
    )


def profiler_section(checks: Sequence[SelfCheck]) -> Section:
    """Return what the checks of the profiler found."""
    is_alone = len({check.framework for check in checks}) == 1
    rows = [
        (
            check.name if is_alone else f"{check.framework}: {check.name}",
            f"{'ok' if check.passed else 'FAILED'}: {check.found}",
        )
        for check in checks
    ]
    return Section(
        key="profiler",
        title="profiler",
        rows=rows,
        data={"checks": [asdict(check) for check in checks]},
        advice=tuple(dict.fromkeys(check.advice for check in checks if check.advice)),
        failed=not all(check.passed for check in checks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConditions:
    """Interference on the machine, and its ability to stop and pin processes."""

    load: tuple[float, int] | None = None
    """Load average of the last minute before, and the cores; None where the system has none."""
    remarks: Sequence[str] = ()
    """Interference that was noticed while steps ran."""
    watched_s: float
    """Seconds of these steps."""
    can_stop: bool
    """True if SIGSTOP works."""
    can_pin: bool
    """True if processes keep to their cores."""


def conditions_section(conditions: MachineConditions) -> Section:
    """Return what else the machine does, and whether turns can be taken on it."""
    rows = []
    if conditions.load:
        load, n_cores = conditions.load
        rows.append(("load average", f"{load:.2f} on {plural(n_cores, 'core')}, before"))
    quiet = f"not detected in {conditions.watched_s:.0f} s (load, clocks, heat, quotas)"
    rows += [("interference", remark) for remark in conditions.remarks or (quiet,)]
    pausing = "ok: SIGSTOP and SIGCONT work"
    pinning = "ok: processes keep to their cores"
    if not conditions.can_stop:
        pausing = "FAILED: a process cannot be paused with SIGSTOP"
    if not conditions.can_pin:
        pinning = "not possible: one core, or a system without sched_setaffinity"
    rows += [("pause and resume", pausing), ("CPU affinity", pinning)]
    return Section(
        key="conditions",
        title="conditions",
        rows=rows,
        data={
            "load": conditions.load[0] if conditions.load else None,
            "remarks": list(conditions.remarks),
            "can_stop": conditions.can_stop,
            "can_pin": conditions.can_pin,
        },
        advice=(
            *([] if conditions.can_stop else [_NEEDS_STOPPING]),
            *([] if conditions.can_pin else [_PINNING_HELPS]),
        ),
        failed=not conditions.can_stop,
    )
