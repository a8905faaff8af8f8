"""
What the machine did besides while steps were timed: other load, the clock of the CPU, heat, a CPU quota.

Read once before a window and once after it, from what Linux counts anyway; where a system does not tell, nothing is said.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.machine.cores import load_average, usable_cores
from pytest_tfperf.machine.gpu_conditions import Gpu, clock_remark, gpu_remarks, read_gpus

_MATTERS = 0.05  # of the cores: by so much a step is longer that would keep all of them busy
_TICKS_S = 0.1  # ten ticks of /proc/stat, whose times come in hundredths of a second
_FIX = "fix the frequency (cpupower frequency-set --governor performance, turbo off)"
_CLOCK_MATTERS = 0.10  # single readings of a busy core differ by some percent
_LOAD = 1.5  # waiting or running threads a core: TensorFlow itself keeps one a core busy
_CORES = 16  # whose clock is read at most: a file each
_ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """
    Readings at one moment; None is what the system does not tell.

    CPU seconds, since whenever, over so many `cores`: `busy_s` of all processes, `stolen_s` taken by the hypervisor, `own_s` of what
    is measured: this process and the children it has waited for, or others that were named. `interruptions` are this process's
    involuntary context switches, `clock_mhz` that of the fastest core, `hot` how often a core was slowed for heat, `quota` the periods
    of the CPU quota and those in which it stopped this process, `load` the load average where no CPU seconds are told.
    """

    at_s: float
    cores: int
    own_s: float
    busy_s: float | None = None
    stolen_s: float | None = None
    interruptions: int | None = None
    clock_mhz: float | None = None
    hot: int | None = None
    quota: tuple[int, int] | None = None
    load: float | None = None
    gpus: tuple[Gpu, ...] = ()


@contextmanager
def conditions_noted(notes: list[str]) -> Iterator[None]:
    """What the machine did besides within the context stands in `notes` afterwards, in place of what was there."""
    before = read_conditions()
    try:
        yield
    finally:
        notes[:] = remarks(before, read_conditions())


def read_conditions(root: Path = _ROOT) -> Conditions:
    """The conditions of this process now, of a Linux whose /proc and /sys are under `root`."""
    return replace(read_cpu(root), gpus=read_gpus())


def read_cpu(
    root: Path = _ROOT, cores: Sequence[int] = (), processes: Sequence[int] = ()
) -> Conditions:
    """
    The conditions now but for GPUs, which TensorFlow is asked for.

    Args:
        cores: Those that matter; of none given all that this process may use.
        processes: The ids of those that are measured; of none given this one.
    """
    cores = tuple(cores) or usable_cores()
    cpu = _cpu_seconds(_text(root / "proc/stat"), cores)
    return Conditions(
        at_s=time.perf_counter(),
        cores=len(cores),
        own_s=sum(_process_seconds(root, process) for process in processes)
        if processes
        else _own_seconds(),
        busy_s=cpu[0] if cpu else None,
        stolen_s=cpu[1] if cpu else None,
        interruptions=_interruptions(),
        clock_mhz=_clock_mhz(root, cores),
        hot=_hot(root, cores),
        quota=_quota(root),
        load=None if cpu else load_average(),
    )


def remarks(before: Conditions, after: Conditions) -> tuple[str, ...]:
    """What is worth to know of the timed window between two readings, each with its figures and what to do."""
    found = (
        _loaded(before, after),
        _stolen(before, after),
        _clock(before, after),
        _heat(before, after),
        _stopped(before, after),
    )
    return tuple(remark for remark in found if remark) + gpu_remarks(before.gpus, after.gpus)


def other_load(before: Conditions, after: Conditions) -> float | None:
    """The share of the cores that other processes used between two readings; None where it is too little to matter, or not told."""
    if before.busy_s is None or after.busy_s is None:
        return None
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    share = others / _available(before, after)
    return None if others < _TICKS_S or share < _MATTERS else min(share, 1.0)


def _loaded(before: Conditions, after: Conditions) -> str | None:
    if after.load is not None and after.load > _LOAD * after.cores:
        return f"the load average was {after.load:.1f} on {after.cores} cores in the timed window: {_QUIET}"
    share = other_load(before, after)
    if share is None:
        return None
    return f"other processes used {share:.0%} of the {_cores(after)} in the timed window{_interrupted(before, after)}: {_QUIET}"


_QUIET = "step_time is longer for it; stop what else runs there, children of the test too, or compare with --tfperf-against"


def _interrupted(before: Conditions, after: Conditions) -> str:
    if before.interruptions is None or after.interruptions is None:
        return ""
    return (
        f" (involuntary context switches of this one: {after.interruptions - before.interruptions})"
    )


def _stolen(before: Conditions, after: Conditions) -> str | None:
    if before.stolen_s is None or after.stolen_s is None:
        return None
    stolen = after.stolen_s - before.stolen_s
    share = stolen / _available(before, after)
    if stolen < _TICKS_S or share < _MATTERS:
        return None
    return (
        f"the hypervisor gave {min(share, 1):.0%} of the {_cores(after)} to other machines in the timed window: times of this machine "
        "are comparable in pairs only (--tfperf-against)"
    )


def _clock(before: Conditions, after: Conditions) -> str | None:
    return clock_remark("the fastest core", before.clock_mhz, after.clock_mhz, _CLOCK_MATTERS, _FIX)


def _heat(before: Conditions, after: Conditions) -> str | None:
    if before.hot is None or after.hot is None or after.hot <= before.hot:
        return None
    return f"cores were slowed for heat {after.hot - before.hot} times in the timed window: let the machine cool, or lower its frequency"


def _stopped(before: Conditions, after: Conditions) -> str | None:
    if before.quota is None or after.quota is None or after.quota[1] <= before.quota[1]:
        return None
    periods, stopped = after.quota[0] - before.quota[0], after.quota[1] - before.quota[1]
    return (
        f"the CPU quota of its container stopped this process in {stopped} of {periods} periods of the timed window: raise the quota "
        "(cpu.max, limits.cpu), or give TensorFlow no more threads than it allows"
    )


def _available(before: Conditions, after: Conditions) -> float:
    """CPU seconds that all cores had."""
    return max((after.at_s - before.at_s) * after.cores, 1e-9)


def _cores(conditions: Conditions) -> str:
    return f"{conditions.cores} cores" if conditions.cores > 1 else "core"


def _own_seconds() -> float:
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def _process_seconds(root: Path, process: int) -> float:
    """CPU seconds of a process, all its threads and the children it has waited for: fields 14 to 17 (Linux, proc_pid_stat(5))."""
    fields = _text(root / f"proc/{process}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _cpu_seconds(stat: str, cores: tuple[int, ...]) -> tuple[float, float] | None:
    """Busy and stolen seconds of the cores: user, nice, system, irq, softirq; steal (Linux, proc_stat(5); guests are in user)."""
    rows = {
        int(row[0]): [int(cell) for cell in row[1:]]
        for row in (line[3:].split() for line in re.findall(r"^cpu\d.*", stat, re.M))
    }
    if any(len(rows.get(core, ())) < 8 for core in cores):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    busy = sum(sum(rows[core][:3]) + rows[core][5] + rows[core][6] for core in cores)
    return busy / tick, sum(rows[core][7] for core in cores) / tick


def _clock_mhz(root: Path, cores: tuple[int, ...]) -> float | None:
    """Of the fastest core, which is one that works: from cpufreq in kHz, or from /proc/cpuinfo."""
    files = (
        root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        for core in cores[:_CORES]
    )
    known = [int(text) / 1000 for text in map(_text, files) if text.strip().isdigit()]
    if not known and len(cores) <= _CORES:
        known = [
            float(mhz)
            for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _text(root / "proc/cpuinfo"), re.M)
        ]
    return max(known, default=None)


def _hot(root: Path, cores: tuple[int, ...]) -> int | None:
    """How often cores were slowed for heat since boot (Intel; Linux, Documentation/admin-guide/abi: thermal_throttle)."""
    files = (
        root / f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count"
        for core in cores[:_CORES]
    )
    known = [int(text) for text in map(_text, files) if text.strip().isdigit()]
    return sum(known) if known else None


def _quota(root: Path) -> tuple[int, int] | None:
    """
    Periods, and those in which it was stopped, of the innermost control group with a CPU quota: cgroup v2, and v1 in its usual places.

    Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.stat: nr_periods, nr_throttled) and Documentation/scheduler/sched-bwc.rst.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):
            stat = dict(
                re.findall(
                    r"^(\w+) (\d+)$",
                    _text(root / "sys/fs/cgroup" / controllers / group / "cpu.stat"),
                    re.M,
                )
            )
            if int(stat.get("nr_periods", 0)):
                return int(stat["nr_periods"]), int(stat.get("nr_throttled", 0))
    return None


def _interruptions() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _text(path: Path) -> str:
    """What is in a file; nothing where it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def is_traced() -> bool:
    """Whether somebody follows what Python does here: by sys.settrace or sys.setprofile, or as a tool of PEP 669 (Python 3.12)."""
    monitoring: Any = getattr(sys, "monitoring", None)
    kinds = (
        ()
        if monitoring is None
        else (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID)
    )
    return bool(
        sys.gettrace() or sys.getprofile() or any(monitoring.get_tool(kind) for kind in kinds)
    )
