"""
Measure `tfperf analyze` on a job of many hosts, and check that it finds what was planted.

    python benchmarks/pod.py                                  # 8, 16, 32 and 64 hosts of 8 TPU cores, 20 steps each
    python benchmarks/pod.py --hosts 64 --traces DIR          # keep the traces

One core works longer in every step, and another host is late. The traces are those of tests/helpers/pods.py. Each figure
comes from a new process, interpreter start included. The exponent is the slope of log cost over log devices: 1 is
proportional to the number of devices.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from analyze import cost, median, slope, tfperf
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.pods import BYTES, UPDATE, pod_host

WORK_MS, STRAGGLER_MS, LATE_MS = 8, 2, 1
STRAGGLING_CORE = 3


def straggler(n_hosts):
    return n_hosts // 4


def late_host(n_hosts):
    return n_hosts // 2


def make(folder, n_hosts, n_cores, n_steps, n_layers):
    """Write the traces of a job, and return its logdir. Each step has `n_layers` ops before its collective."""
    logdir = folder / f"{n_hosts}x{n_cores}x{n_steps}x{n_layers}"
    run = logdir / "plugins" / "profile" / "run"
    if run.exists():
        return logdir
    run.mkdir(parents=True)
    n_devices = n_hosts * n_cores
    for host in range(n_hosts):
        work = [WORK_MS] * n_cores
        if host == straggler(n_hosts):
            work[STRAGGLING_CORE] += STRAGGLER_MS
        late = LATE_MS if host == late_host(n_hosts) else 0
        raw = pod_host(
            work,
            late,
            WORK_MS + STRAGGLER_MS,
            n_steps,
            f"[1,{n_devices}]<=[{n_devices}]",
            clock_s=-1.7 * host,
            n_layers=n_layers,
        )
        (run / f"host_{host}.xplane.pb").write_bytes(raw)
    return logdir


def check(logdir, n_hosts, n_cores):
    """Compare what the command finds with what was planted; exits with the difference."""
    out = subprocess.run([*tfperf(logdir), "--json"], check=True, capture_output=True).stdout
    tables = json.loads(out)["profiles"][0]["tables"]
    records = {
        key: [
            dict(zip([c["key"] for c in table["columns"]], row, strict=True))
            for row in table["rows"]
        ]
        for key, table in tables.items()
    }
    devices, [collective] = records["job_device_parts"], records["job_collectives"]
    n_devices = n_hosts * n_cores
    others = n_devices - 1 - n_cores
    waited = (others * STRAGGLER_MS + n_cores * (STRAGGLER_MS - LATE_MS)) / n_devices
    late = {f"host_{late_host(n_hosts)}/TPU:{core}" for core in range(n_cores)}
    found = {
        "straggler": devices[0]["device"],
        "its work": round(devices[0]["device_compute"] * 1e3, 6),
        "late host": {row["device"] for row in devices[1 : 1 + n_cores]},
        "its waiting": round(devices[1]["waiting"] * 1e3, 6),
        "devices": tables["job_device_parts"]["n_more"] + len(devices),
        "bytes": collective["bytes"],
        "waiting": round(collective["waiting"] * 1e3, 6),
        "last": collective["last"],
    }
    planted = f"host_{straggler(n_hosts)}/TPU:{STRAGGLING_CORE}"
    wanted = {
        "straggler": planted,
        "its work": WORK_MS + STRAGGLER_MS + UPDATE,
        "late host": late,
        "its waiting": STRAGGLER_MS - LATE_MS,
        "devices": n_devices,
        "bytes": BYTES,
        "waiting": round(waited, 6),
        "last": planted,
    }
    if found != wanted:
        raise SystemExit(f"planted {wanted}\nfound   {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--cores", type=int, default=8, help="TPU cores of each host")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--layers", type=int, default=100, help="ops of a step before its collective"
    )
    parser.add_argument("--runs", type=int, default=3, help="medians of so many")
    parser.add_argument("--processors", type=int, default=2, help="processor cores of the command")
    parser.add_argument(
        "--traces", type=Path, help="keep the traces here, and use those that are there"
    )
    arguments = parser.parse_args()
    folder = arguments.traces or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows, costs = [], []
        for n_hosts in arguments.hosts:
            logdir = make(folder, n_hosts, arguments.cores, arguments.steps, arguments.layers)
            check(logdir, n_hosts, arguments.cores)
            size = sum(path.stat().st_size for path in logdir.glob("**/*.pb"))
            costs.append(
                median(
                    [
                        cost(tfperf(logdir), arguments.processors, True)
                        for _ in range(arguments.runs)
                    ]
                )
            )
            one = costs[-1]
            rows.append(
                [
                    n_hosts,
                    n_hosts * arguments.cores,
                    size / 1e6,
                    one.wall_s,
                    one.cpu_s,
                    one.peak_mb,
                    one.together_mb,
                ]
            )
        headers = [
            "hosts",
            "devices",
            "MB of traces",
            "wall s",
            "CPU s",
            "largest process MB",
            "all processes MB",
        ]
        print(tabulate(rows, headers, floatfmt=".3g"))
        if len(rows) > 1:
            devices = [row[1] for row in rows]
            wall, cpu, peak, together = (
                slope(devices, [row[n] for row in rows]) for n in range(3, 7)
            )
            print(
                f"exponent over devices: wall {wall:.2f}, CPU {cpu:.2f}, largest process {peak:.2f}, all processes {together:.2f}"
            )
    finally:
        if not arguments.traces:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
