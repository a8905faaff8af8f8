"""
Measure the analysis of many traces by one and by two workers of Dask, and compute that of a large job.

    python benchmarks/fleet.py                       # 200 traces of 5 MB, and one of 100 MB

All traces are the hosts of one run. They are copies of one recorded trace (see large_trace.py), each with a host
name of its own, so that their hashes differ. Each figure comes from a new cluster and a new store. The runs with
one worker and with two alternate. What a large job takes is computed from what is measured here, and printed with
each of its assumptions.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from tabulate import tabulate

from pytest_tfperf.machine.memory import read_resident
from pytest_tfperf.stores.trace_results import TraceResults
from pytest_tfperf.stores.traces import analyze_traces, skews_of

EVENTS_PER_MB = 37_500  # of large_trace.py; the sizes that result are measured
HOSTNAMES = 4  # field of XSpace in xplane.proto
LARGE_HOSTS, LARGE_MB, LARGE_WORKERS = 1000, 100, 64
READ_MB_PER_S = 100  # assumed: what a worker reads from an object store


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of all traces, processor seconds of the workers, and the peak memory of one in MB, before and after."""

    wall_s: float
    cpu_s: float
    idle_mb: float
    peak_mb: float


def recorded_trace(path, size_mb):
    """Make a trace of about this size, and return its content."""
    script = Path(__file__).with_name("large_trace.py")
    events = str(round(size_mb * EVENTS_PER_MB))
    subprocess.run([sys.executable, script, path, "--events", events], check=True, capture_output=True)  # fmt: skip
    return path.read_bytes()


def copy_of(raw, number):
    """The same trace of another host."""
    name = f"host-{number}".encode()
    return raw + bytes([HOSTNAMES << 3 | 2, len(name)]) + name


def write_run(folder, raw, n_traces):
    run = folder / "plugins/profile/run"
    run.mkdir(parents=True)
    for number in range(n_traces):
        (run / f"host_{number:04}.xplane.pb").write_bytes(copy_of(raw, number))
    return str(folder)


def usage():
    """Processor seconds and peak memory of this process, by the kernel's count for its program alone."""
    return time.process_time(), read_resident().most / 1e6


def workers_usage(address):
    """Processor seconds of all workers, and the peak memory of one in MB."""
    with Client(address, set_as_default=False) as client:
        seconds, peaks = zip(*client.run(usage).values(), strict=True)
    return sum(seconds), max(peaks)


def cost(url, n_workers, folder, first=None):
    """Analyse all traces with a new cluster into a new store; before that one that is not counted, if any."""
    store = Path(tempfile.mkdtemp(dir=folder)) / "store"
    with LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        executor = address.replace("tcp", "dask")
        if first is not None:
            analyze_traces(first, str(store), executor=executor)
        cpu_before, idle = workers_usage(address)
        start = time.perf_counter()
        found = analyze_traces(url, str(store), executor=executor)
        wall = time.perf_counter() - start
        if found.errors or found.n_analysed != found.n_traces:
            raise SystemExit(f"not all traces were analysed: {found.errors[:3]}")
        cpu, peak = workers_usage(address)
        return Cost(wall, cpu - cpu_before, idle, peak), store


def local_s(url, n_processes, folder):
    """Seconds of all traces with local processes, from their start, and with the allocator as Dask sets it."""
    store = Path(tempfile.mkdtemp(dir=folder)) / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_TRIM_THRESHOLD_", os.environ.get("MALLOC_TRIM_THRESHOLD_", "65536"))
        start = time.perf_counter()
        analyze_traces(url, str(store), executor=n_processes)
        return time.perf_counter() - start


def overhead_s(n_tasks=2000):
    """Seconds of the scheduler and the client for each task that does nothing."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster.scheduler_address, set_as_default=False) as client,
    ):
        pool = client.get_executor(pure=False)
        pool.submit(abs, 0).result()
        start = time.perf_counter()
        for future in [pool.submit(abs, n) for n in range(n_tasks)]:
            future.result()
        return (time.perf_counter() - start) / n_tasks


def alignment_s(store, n_hosts):
    """Seconds to read the step tables of a run and to align its hosts."""
    opened = TraceResults(str(store))
    contents = sorted(opened.index().analysed)
    start = time.perf_counter()
    skews_of(opened, {"run": {str(n): content for n, content in enumerate(contents)}})
    assert len(contents) == n_hosts
    return time.perf_counter() - start


def table_bytes(store, kind):
    """Bytes of the largest table of this kind."""
    return max(path.stat().st_size for path in (store / f"{kind}-1").iterdir())


def print_runs(costs, n_traces, size_mb):
    rows = [
        [
            n_workers,
            f"{statistics.median(one.wall_s for one in found):.1f} s",
            f"{min(one.wall_s for one in found):.1f} to {max(one.wall_s for one in found):.1f} s",
            f"{n_traces * size_mb / statistics.median(one.wall_s for one in found):.1f} MB/s",
            f"{statistics.median(one.cpu_s for one in found):.1f} s",
            f"{max(one.idle_mb for one in found):.0f} MB",
            f"{max(one.peak_mb for one in found):.0f} MB",
        ]
        for n_workers, found in costs.items()
    ]
    titles = ["workers", "median", "range", "rate", "processor", "idle worker", "peak of a worker"]
    print(tabulate(rows, titles))
    ratios = [one.wall_s / two.wall_s for one, two in zip(*costs.values(), strict=True)]
    print(f"speed-up of each pair of runs: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def print_large_job(large, large_mb, task_s, align_s, steps_bytes):
    """Compute what a job of many hosts takes."""
    rounds = math.ceil(LARGE_HOSTS / LARGE_WORKERS)
    scale = LARGE_MB / large_mb
    analysis_s, read_s = large.wall_s * scale, LARGE_MB / READ_MB_PER_S
    total_s = rounds * (analysis_s + read_s) + LARGE_HOSTS * (task_s + align_s)
    rows = [
        ["analysis of a trace, measured", f"{analysis_s:.1f} s", f"{large.wall_s / large_mb:.3f} s a MB, at {large_mb:.0f} MB"],
        ["reading a trace, assumed", f"{read_s:.1f} s", f"{READ_MB_PER_S} MB/s a worker"],
        ["traces of a worker one after the other", f"{rounds}", f"{LARGE_HOSTS} hosts / {LARGE_WORKERS} workers"],
        ["scheduler and client, measured", f"{LARGE_HOSTS * task_s:.1f} s", f"{task_s * 1e3:.2f} ms a task"],
        ["alignment of hosts, measured", f"{LARGE_HOSTS * align_s:.1f} s", f"{align_s * 1e3:.2f} ms a host"],
        ["step tables that travel, measured", f"{LARGE_HOSTS * steps_bytes / 1e6:.1f} MB", f"{steps_bytes / 1e3:.1f} kB a trace"],
        ["memory of a worker, measured", f"{large.peak_mb * scale:.0f} MB", f"{large.peak_mb / large_mb:.1f} times the trace"],
        ["together", f"{total_s:.0f} s", f"{LARGE_HOSTS * LARGE_MB / 1e3:.0f} GB"],
    ]  # fmt: skip
    print(f"\n{LARGE_HOSTS} hosts × {LARGE_MB} MB on {LARGE_WORKERS} workers, computed:")
    print(tabulate(rows, disable_numparse=True, tablefmt="plain"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--traces", type=int, default=200)
    parser.add_argument("--mb", type=float, default=5)
    parser.add_argument("--large-mb", type=float, default=LARGE_MB)
    parser.add_argument("--pairs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = recorded_trace(folder / "small.xplane.pb", arguments.mb)
        size_mb = len(raw) / 1e6
        url = write_run(folder / "small", raw, arguments.traces)
        print(f"{arguments.traces} traces of {size_mb:.1f} MB, load {os.getloadavg()[0]:.1f}")
        costs = {1: [], 2: []}
        for _ in range(arguments.pairs):
            for n_workers, found in costs.items():
                one, store = cost(url, n_workers, folder)
                found.append(one)
                print(f"  {n_workers} workers: {one.wall_s:.1f} s, load {os.getloadavg()[0]:.1f}")
        print_runs(costs, arguments.traces, size_mb)
        for _ in range(arguments.pairs):
            one, two = (local_s(url, n_processes, folder) for n_processes in (1, 2))
            print(f"  local processes: {one:.1f} s, {two:.1f} s, {one / two:.2f} times as fast")
        raw = recorded_trace(folder / "large.xplane.pb", arguments.large_mb)
        small = str(next((folder / "small").rglob("*.xplane.pb")))
        large, large_store = cost(write_run(folder / "large", raw, 1), 1, folder, small)
        print_large_job(
            large,
            len(raw) / 1e6,
            overhead_s(),
            alignment_s(store, arguments.traces) / arguments.traces,
            table_bytes(large_store, "steps"),
        )


if __name__ == "__main__":
    main()
