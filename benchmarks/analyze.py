"""
Measure the cost of `tfperf analyze`, beside XProf's `overview_page` on the same traces.

    python benchmarks/analyze.py --xprof XPROF/bin/python              # any Python with the wheel xprof==2.24.2
    python benchmarks/analyze.py --hosts 8                             # one logdir of eight hosts

Each figure comes from a new process, interpreter start included. The two commands run alternately, pinned to
one core and to two. The slope is that of log cost over log events: 1 is proportional to the trace. XProf gets
a fresh folder each time, since it caches its results beside the trace. The larger traces take up to a minute
each to make; `--traces DIR` keeps them.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

OVERVIEW = "import sys; from xprof.convert import raw_to_tool_data as r; print(len(r.xspace_to_tool_data([sys.argv[1]], 'overview_page', {})[0]))"
SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and processor seconds, the peak memory of the largest process in MB, and that of all processes together."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    together_mb: float


def cost(command, cores, sampled=False):
    """Measure a command on `cores` cores and discard its output. Sampling its children costs some time itself."""
    pinned = [
        "taskset",
        "-c",
        ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores])),
        *map(str, command),
    ]
    start = time.perf_counter()
    process = subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks, done = [0.0], threading.Event()
    sampler = threading.Thread(target=sample, args=(process.pid, peaks, done))
    if sampled:
        sampler.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    done.set()
    if sampled:
        sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(pinned)} ended with status {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3 * 1.024, peaks[0])


def sample(pid, peaks, done):
    """Keep the largest memory of a process and its children, shared pages counted once."""
    while not done.wait(SAMPLE_S):
        peaks[0] = max(peaks[0], sum(map(proportional_mb, family(pid))))


def family(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(member for child in children for member in family(int(child)))]


def proportional_mb(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(
        (int(line.split()[1]) / 1e3 * 1.024 for line in lines if line.startswith("Pss:")), 0.0
    )


def tfperf(path):
    return [Path(sys.executable).with_name("tfperf"), "analyze", path]


def overview_cost(python, path, cores):
    """XProf's cost, in a folder that holds nothing but the trace."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / path.name
        os.link(path, copy)
        return cost([python, "-c", OVERVIEW, copy], cores)


def median(costs):
    return Cost(
        *(statistics.median(getattr(each, name) for each in costs) for name in Cost.__slots__)
    )


def make_trace(path, n_events, *more):
    if not path.exists():
        script = Path(__file__).with_name("large_trace.py")
        subprocess.run(
            [sys.executable, script, path, "--events", str(n_events), *more],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return path


def slope(sizes, values):
    return np.polyfit(np.log(sizes), np.log(values), 1)[0]


def sizes_table(arguments, folder):
    """Print a row for each size and number of cores, then the slopes."""
    rows, slopes = [], []
    for cores in arguments.cores:
        costs = []
        for millions in arguments.sizes:
            path = make_trace(folder / f"{millions:g}M.xplane.pb", round(millions * 1e6))
            turns = [
                (
                    cost(tfperf(path), cores),
                    overview_cost(arguments.xprof, path, cores) if arguments.xprof else None,
                )
                for _ in range(arguments.runs)
            ]
            ours = median([turn[0] for turn in turns])
            theirs = median([turn[1] for turn in turns]) if arguments.xprof else None
            costs.append((ours, theirs))
            rows.append([f"{millions:g} M", cores, *compared(ours, theirs)])
        for side, name in enumerate(["tfperf", "XProf"] if arguments.xprof else ["tfperf"]):
            if len(costs) == 1:
                continue
            time_slope = slope(arguments.sizes, [pair[side].wall_s for pair in costs])
            memory_slope = slope(arguments.sizes, [pair[side].peak_mb for pair in costs])
            slopes.append(
                f"slope over events, {cores} core{'s' * (cores > 1)}, {name}: time {time_slope:.2f}, memory {memory_slope:.2f}"
            )
    headers = ["events", "cores", "tfperf s", "XProf s", "ratio", "tfperf MB", "XProf MB", "ratio"]
    return "\n".join([tabulate(rows, headers, floatfmt=".3g"), *slopes])


def compared(ours, theirs):
    if theirs is None:
        return ours.wall_s, None, None, ours.peak_mb, None, None
    return (
        ours.wall_s,
        theirs.wall_s,
        theirs.wall_s / ours.wall_s,
        ours.peak_mb,
        theirs.peak_mb,
        theirs.peak_mb / ours.peak_mb,
    )


def hosts_table(arguments, folder):
    """Measure one host's trace, and all hosts' traces in one call."""
    rows = []
    for millions in arguments.sizes:
        logdir = make_trace(
            folder / f"{arguments.hosts}x{millions:g}M",
            round(millions * 1e6),
            "--hosts",
            str(arguments.hosts),
        )
        one = next(logdir.glob("plugins/profile/*/host_0.xplane.pb"))
        for cores in arguments.cores:
            single, every = (
                median([cost(tfperf(path), cores, True) for _ in range(arguments.runs)])
                for path in (one, logdir)
            )
            peaks = (single.together_mb, every.together_mb, every.together_mb / single.together_mb)
            rows.append(
                [
                    f"{arguments.hosts} x {millions:g} M",
                    cores,
                    single.wall_s,
                    every.wall_s,
                    *peaks,
                    every.cpu_s / every.wall_s,
                ]
            )
    headers = [
        "events",
        "cores",
        "one host s",
        "all s",
        "one host MB",
        "all MB",
        "ratio",
        "CPU ÷ wall, all",
    ]
    return tabulate(rows, headers, floatfmt=".3g")


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "--xprof",
        type=Path,
        help="a Python that has the wheel xprof==2.24.2; without it, our side alone",
    )
    parser.add_argument(
        "--sizes",
        type=float,
        nargs="+",
        default=[1, 3, 10],
        help="millions of events (of each host)",
    )
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--hosts", type=int, help="measure a logdir of so many hosts instead")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many")
    parser.add_argument(
        "--traces", type=Path, help="keep the traces here, and use those that are there"
    )
    arguments = parser.parse_args()
    folder = arguments.traces or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print(hosts_table(arguments, folder) if arguments.hosts else sizes_table(arguments, folder))
    finally:
        if not arguments.traces:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
