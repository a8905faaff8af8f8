"""
Conditions that disturb timing: other load, CPU clock, heat, CPU quota, GPUs, tracing, idle cores.

Linux counts most of them anyway. GPUs are asked by NVML, which needs `pynvml` (nvidia-ml-py), an
optional package. Where a system does not show a value, it is unknown.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.frameworks.in_use import n_gpus
from pytest_tfperf.machine.clocks import children_cpu_s
from pytest_tfperf.machine.cores import load_average, pinnable_cores, usable_cores
from pytest_tfperf.quantities import SHARE, format_quantity

_MOST_CORES = 16  # whose clocks are read: one file each
_ROOT = Path("/")
MATTERS = 0.05  # share of the cores; a step that keeps all of them busy takes as much longer
_TICKS_S = 0.1  # ten ticks of /proc/stat, whose times come in hundredths of a second
_CLOCK_MATTERS = 0.10  # single readings of a busy core differ by some percent
_LOAD = 1.5  # waiting or running threads per core: TensorFlow itself keeps one per core busy
_QUIET = "step_time is longer for it; stop what else runs there, or compare with --tfperf-against"


_CLOCK_SM = 1  # nvml.h: NVML_CLOCK_SM
# nvml.h: nvmlClocksEventReason* (nvmlClocksThrottleReason* before driver 535). An idle GPU, and
# clocks set by a user, are not among them.
_REASONS: Mapping[int, str] = {
    0x04: "its power limit (SW power cap)",
    0x08: "the hardware (HW slowdown)",
    0x20: "heat (SW thermal slowdown)",
    0x40: "heat (HW thermal slowdown)",
    0x80: "its power supply (HW power brake)",
}
_IDLE_TASK = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Readings of one GPU; None is unknown."""

    label: str
    """Index or UUID, and model."""
    clock_mhz: int | None
    """Clock of its multiprocessors."""
    reasons: int | None
    """Bits of the reasons that hold its clock down (nvml.h, nvmlClocksEventReason*)."""
    others: int | None
    """Number of other processes with a context on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Readings at one moment; None is a value that the system does not show."""

    at_s: float
    """Time of the reading."""
    cores: tuple[int, ...]
    """The CPU cores that the readings are about."""
    own_s: float
    """CPU seconds of the measured processes and their children."""
    busy_s: float | None = None
    """CPU seconds of all processes on these cores, since boot."""
    stolen_s: float | None = None
    """CPU seconds that the hypervisor took from these cores, since boot."""
    clock_mhz: float | None = None
    """Clock of the fastest core."""
    hot: int | None = None
    """Number of times that a core was slowed down for heat."""
    quota: tuple[int, int] | None = None
    """Periods of the CPU quota, and those in which it stopped this process."""
    load: float | None = None
    """Load average, on a system without CPU seconds."""
    gpus: tuple[Gpu, ...] = ()


def read_conditions(root: Path = _ROOT) -> Conditions:
    """Read the conditions of this process; /proc and /sys of Linux are under `root`."""
    return replace(read_cpu(root), gpus=read_gpus())


def read_cpu(
    root: Path = _ROOT, cores: Sequence[int] = (), groups: Collection[int] = ()
) -> Conditions:
    """
    Read the conditions except those of GPUs, which need TensorFlow.

    By default they are of this process, not of groups of processes, on all cores that it may use.
    """
    cores = tuple(cores) or usable_cores()
    cpu = _cpu_seconds(text_of(root / "proc/stat"), cores)
    own_s = _group_seconds(root, groups) if groups else _own_seconds()
    return Conditions(
        at_s=time.perf_counter(),
        cores=cores,
        own_s=own_s,
        busy_s=cpu[0] if cpu else None,
        stolen_s=cpu[1] if cpu else None,
        clock_mhz=_clock_mhz(root, cores),
        hot=_hot(root, cores),
        quota=_quota(root),
        load=None if cpu else load_average(),
    )


@dataclass(slots=True)
class Interference:
    """What else used the machine in a stretch of time."""

    remarks: tuple[str, ...] = ()
    """Remarks with figures and advice."""
    other_load: float | None = None
    """Share of the cores that these processes could not have; None if it is unknown."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let it be that of the context."""
        before = read_conditions()
        try:
            yield
        finally:
            after = read_conditions()
            self.remarks, self.other_load = remarks(before, after), share_lost(before, after)


def remarks(before: Conditions, after: Conditions) -> tuple[str, ...]:
    """Return remarks on interference between two readings, with figures and advice."""
    if before.cores != after.cores:
        return (_OTHER_CORES, *gpu_remarks(before.gpus, after.gpus))
    found = (
        _loaded(before, after),
        _stolen(before, after),
        _clock(before, after),
        _heat(before, after),
        _stopped(before, after),
    )
    return tuple(remark for remark in found if remark) + gpu_remarks(before.gpus, after.gpus)


def share_lost(before: Conditions, after: Conditions) -> float | None:
    """
    Return the share of the cores that these processes could not have between two readings.

    Other processes used it, or other machines of the hypervisor; or a CPU quota stopped these for
    that share of its periods. It is None if it is unknown.
    """
    used = _used_by_others(before, after)
    if used is None:
        return None
    stolen = (after.stolen_s or 0.0) - (before.stolen_s or 0.0)
    periods, stopped = _periods(before, after)
    lost = max(used + stolen / _available(before, after), stopped / periods if periods else 0.0)
    return min(max(lost, 0.0), 1.0)


def other_load(before: Conditions, after: Conditions) -> float | None:
    """
    Return the share of the cores that other processes used between two readings.

    It is None if it is unknown, or too small to matter.
    """
    share = _used_by_others(before, after)
    if share is None or share < MATTERS or share * _available(before, after) < _TICKS_S:
        return None
    return min(share, 1.0)


_OTHER_CORES = (
    "the cores that this process may use changed in the timed window: step_time is of both, and "
    "what others used of them is unknown"
)


def _used_by_others(before: Conditions, after: Conditions) -> float | None:
    if before.busy_s is None or after.busy_s is None or before.cores != after.cores:
        return None
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return others / _available(before, after)


def _periods(before: Conditions, after: Conditions) -> tuple[int, int]:
    """Return the periods of the CPU quota between two readings, and those that stopped steps."""
    if before.quota is None or after.quota is None:
        return 0, 0
    return after.quota[0] - before.quota[0], after.quota[1] - before.quota[1]


def has_quota(root: Path = _ROOT) -> bool:
    """Return whether a control group limits the CPU time of this process."""
    return _quota(root) is not None


def is_traced() -> bool:
    """
    Return whether a tracer follows Python in this process, which slows steps down.

    It uses sys.settrace or sys.setprofile, or is a tool of PEP 669 (Python 3.12).
    """
    if sys.gettrace() or sys.getprofile():
        return True
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return False
    tools = (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID)
    names = {tool: monitoring.get_tool(tool) for tool in tools}
    paused = {
        tool for tool in tools if names[tool] == _COVERAGE and not monitoring.get_events(tool)
    }
    return any(names[tool] for tool in tools if tool not in paused)


_COVERAGE = "coverage.py"
"""Name of coverage's tool of PEP 669 (coverage/sysmon.py)."""


@contextmanager
def coverage_paused() -> Iterator[None]:
    """
    Let coverage.py follow no Python within the context; a debugger goes on.

    Its lines of a step are those of the other steps. It takes sys.settrace, or since Python 3.12
    perhaps a tool of PEP 669.
    """
    tracer, of_new_threads = sys.gettrace(), threading.gettrace()
    kind = type(getattr(tracer, "__self__", tracer))
    monitoring: Any = getattr(sys, "monitoring", None)
    with ExitStack() as restored:
        if kind.__module__.partition(".")[0] == "coverage":
            set_of_threads: Any = threading.settrace
            restored.callback(set_of_threads, of_new_threads)
            restored.callback(sys.settrace, tracer)
            set_of_threads(None)
            sys.settrace(None)
        for tool in range(6) if monitoring else ():  # all that there can be
            if monitoring.get_tool(tool) == _COVERAGE:
                restored.callback(monitoring.set_events, tool, monitoring.get_events(tool))
                monitoring.set_events(tool, 0)
        yield


@contextmanager
def core_kept_awake(root: Path = Path("/")) -> Iterator[int | None]:
    """
    Run an idle task beside this process within the context, if both have one core.

    The result is the number of its process, or None.

    A virtual core that idles may go on at another pace. So steps that wait, for input or between
    epochs, change their pace from turn to turn (benchmarks/remedies.py). The task has the policy
    SCHED_IDLE: it runs only while the steps do not. It belongs to this process's group, which is
    stopped as a whole, and to its session, since Linux compares priorities within a session alone
    (sched(7), autogroups).

    With several cores there is none: it would take the other hyperthread from the step's threads.
    Nor is there one under a CPU quota, which it would use up, or where the system refuses it.
    """
    task = None if len(pinnable_cores()) != 1 or has_quota(root) else _started()
    try:
        yield None if task is None else task.pid
    finally:
        if task is not None:
            task.kill()
            task.wait()


def _started() -> subprocess.Popen[bytes] | None:
    """Start the task; return None if that is refused."""
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _IDLE_TASK, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _loaded(before: Conditions, after: Conditions) -> str | None:
    if after.load is not None and after.load > _LOAD * len(after.cores):
        load = f"the load average was {after.load:.1f} on {len(after.cores)} cores"
        return f"{load} in the timed window: {_QUIET}"
    share = other_load(before, after)
    if share is None:
        return None
    used = format_quantity(share, SHARE)
    return f"other processes used {used} of the {_cores(after)} in the timed window: {_QUIET}"


def _stolen(before: Conditions, after: Conditions) -> str | None:
    if before.stolen_s is None or after.stolen_s is None:
        return None
    stolen = after.stolen_s - before.stolen_s
    share = stolen / _available(before, after)
    if stolen < _TICKS_S or share < MATTERS:
        return None
    given = format_quantity(min(share, 1), SHARE)
    return (
        f"the hypervisor gave {given} of the {_cores(after)} to other machines in the timed "
        "window: times of this machine are comparable in pairs only (--tfperf-against)"
    )


def _clock(before: Conditions, after: Conditions) -> str | None:
    if not before.clock_mhz or not after.clock_mhz:
        return None
    if abs(after.clock_mhz / before.clock_mhz - 1) < _CLOCK_MATTERS:
        return None
    return (
        f"the fastest core ran at {before.clock_mhz:.0f} MHz when the timed window began and at "
        f"{after.clock_mhz:.0f} MHz when it ended: fix the frequency (cpupower frequency-set "
        "--governor performance, turbo off), or give it more warm-up (warmup=)"
    )


def _heat(before: Conditions, after: Conditions) -> str | None:
    if before.hot is None or after.hot is None or after.hot <= before.hot:
        return None
    return (
        f"cores were slowed for heat {after.hot - before.hot} times in the timed window: let the "
        "machine cool, or lower its frequency"
    )


def _stopped(before: Conditions, after: Conditions) -> str | None:
    periods, stopped = _periods(before, after)
    if stopped <= 0:
        return None
    return (
        f"the CPU quota of its container stopped this process in {stopped} of {periods} periods of "
        "the timed window: raise the quota (cpu.max, limits.cpu), or use no more threads "
        "than it allows"
    )


def _available(before: Conditions, after: Conditions) -> float:
    """Return the CPU seconds that all cores had."""
    return max((after.at_s - before.at_s) * len(after.cores), 1e-9)


def _cores(conditions: Conditions) -> str:
    return f"{len(conditions.cores)} cores" if len(conditions.cores) > 1 else "core"


def _own_seconds() -> float:
    times = os.times()
    living = children_cpu_s() or 0.0
    return time.process_time() + times.children_user + times.children_system + living


def _group_seconds(root: Path, groups: Collection[int]) -> float:
    """
    Return the CPU seconds of the processes of some groups, and the children they have waited for.

    Source: fields 5 and 14 to 17 (Linux, proc_pid_stat(5)).
    """
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in processes_of(groups, root))
    return ticks / os.sysconf("SC_CLK_TCK")


def processes_of(groups: Collection[int], root: Path = _ROOT) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folder in /proc of each process of some groups, and its fields from state on."""
    for path in root.glob("proc/[0-9]*/stat"):
        fields = text_of(path).rpartition(")")[2].split()
        if fields and int(fields[2]) in groups:
            yield path.parent, fields


def _cpu_seconds(stat: str, cores: tuple[int, ...]) -> tuple[float, float] | None:
    """
    Return busy and stolen seconds of the cores.

    Columns: user, nice, system, irq and softirq; steal (Linux, proc_stat(5); user holds guests).
    """
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
    """Return the clock of the fastest core: a busy one; from cpufreq (kHz) or /proc/cpuinfo."""
    known = [number / 1000 for number in _numbers(root, cores, "cpufreq/scaling_cur_freq")]
    if not known and len(cores) <= _MOST_CORES:
        cpuinfo = text_of(root / "proc/cpuinfo")
        known = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", cpuinfo, re.M)]
    return max(known, default=None)


def _hot(root: Path, cores: tuple[int, ...]) -> int | None:
    """
    Return how often cores were slowed down for heat since boot, on Intel.

    Source: Linux, Documentation/admin-guide/abi: thermal_throttle.
    """
    known = _numbers(root, cores, "thermal_throttle/core_throttle_count")
    return sum(known) if known else None


def _numbers(root: Path, cores: tuple[int, ...], name: str) -> list[int]:
    """Return the numbers in a file of each core, where it can be read."""
    folder = root / "sys/devices/system/cpu"
    texts = (text_of(folder / f"cpu{core}" / name) for core in cores[:_MOST_CORES])
    return [int(text) for text in texts if text.strip().isdigit()]


def _quota(root: Path) -> tuple[int, int] | None:
    """
    Return the periods of the CPU quota, and those in which it stopped the process.

    They are those of the innermost control group with a quota: cgroup v2, and v1 in its usual
    places. Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.stat: nr_periods,
    nr_throttled) and Documentation/scheduler/sched-bwc.rst.
    """
    for group in control_groups("cpu", root):
        stat = dict(re.findall(r"^(\w+) (\d+)$", text_of(group / "cpu.stat"), re.M))
        if int(stat.get("nr_periods", 0)):
            return int(stat["nr_periods"]), int(stat.get("nr_throttled", 0))
    return None


def control_groups(controller: str, root: Path = _ROOT) -> Iterator[Path]:
    """Yield the folders of this process's control groups of cgroup v2 and v1, innermost first."""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):
            yield root / "sys/fs/cgroup" / controllers / group


def text_of(path: Path) -> str:
    """Return the text of a file, empty if it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def read_gpus() -> tuple[Gpu, ...]:
    """Read the NVIDIA GPUs that steps may run on; the result is empty if they are unknown."""
    nvml = _nvml() if n_gpus() else None
    if nvml is None:
        return ()
    handles = _answer(lambda: _handles(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))) or {}
    return tuple(_read(nvml, name, handle) for name, handle in handles.items())


def gpu_remarks(before: tuple[Gpu, ...], after: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Return remarks on interference with GPUs between two readings, with figures and advice."""
    earlier = {gpu.label: gpu for gpu in before}
    pairs = [(earlier[gpu.label], gpu) for gpu in after if gpu.label in earlier]
    found = [remark(*pair) for pair in pairs for remark in (_held_down, _shared)]
    return tuple(remark for remark in found if remark)


@functools.cache
def _nvml() -> Any:
    """Return the module `pynvml` with NVML running, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another package of that name emits a warning
        try:
            nvml: Any = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception:  # no package, no driver, another package of that name
            return None
    return nvml


def _handles(nvml: Any, visible: str | None) -> dict[str, Any]:
    """
    Return the handle of every visible GPU by its name.

    CUDA_VISIBLE_DEVICES holds indices or UUIDs, and ends at the first entry that is neither (CUDA
    C++ Programming Guide). An index is NVML's if CUDA_DEVICE_ORDER is PCI_BUS_ID, or all GPUs are
    alike.
    """
    if visible is None:
        return {
            f"GPU {index}": nvml.nvmlDeviceGetHandleByIndex(index)
            for index in range(nvml.nvmlDeviceGetCount())
        }
    handles = {}
    for name in visible.replace(" ", "").split(","):
        if name.isdigit():
            handles[f"GPU {name}"] = nvml.nvmlDeviceGetHandleByIndex(int(name))
        elif name.startswith("GPU-"):
            handles[name] = nvml.nvmlDeviceGetHandleByUUID(name)
        else:
            break
    return handles


def _read(nvml: Any, name: str, handle: Any) -> Gpu:
    model = _answer(lambda: nvml.nvmlDeviceGetName(handle))
    text = model.decode() if isinstance(model, bytes) else model
    reasons = _answer(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons is None:  # an older driver or package
        reasons = _answer(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return Gpu(
        label=f"{name} ({text})" if text else name,
        clock_mhz=_answer(lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
        reasons=reasons,
        others=_answer(
            lambda: _others(
                [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            )
        ),
    )


def _others(pids: list[int]) -> int:
    """
    Return the number of other processes with a context.

    In a container NVML may give ids of the host; one of them is this process.
    """
    return len(set(pids) - {os.getpid()}) if os.getpid() in pids else max(len(set(pids)) - 1, 0)


def _held_down(before: Gpu, after: Gpu) -> str | None:
    bits = (before.reasons or 0) | (after.reasons or 0)
    reasons = [reason for bit, reason in _REASONS.items() if bits & bit]
    if not reasons:
        return None
    clock = f", at {after.clock_mhz} MHz," if after.clock_mhz else ""
    return (
        f"{after.label}{clock} was held down by {' and '.join(reasons)}: cool it, or lock its "
        "clocks where it can keep them"
    )


def _shared(before: Gpu, after: Gpu) -> str | None:
    n_others = max(before.others or 0, after.others or 0)
    if not n_others:
        return None
    others = "another process has" if n_others == 1 else f"{n_others} other processes have"
    return (
        f"{others} a context on {after.label}: step_time is longer while they compute; give the "
        "test a GPU of its own"
    )


def _answer(ask: Callable[[], Any]) -> Any:
    """Return NVML's answer, or None if it fails."""
    try:
        return ask()
    except Exception:  # NVMLError is a class of the optional package; older packages lack functions
        return None
