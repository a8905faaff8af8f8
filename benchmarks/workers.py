"""
Compare step times under pytest-xdist with those without it.

    python benchmarks/workers.py [ROUNDS]

A round runs the ten steps in benchmarks/worker_steps with `-n 0` and with `-n 2`, in an order of chance. Thirty other tests keep the
workers busy. Shown is the ratio of the step times, `-n 2` ÷ `-n 0`, for each step the median over the rounds, and the median of those.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def times(workers, folder):
    """The step time of each test, in seconds."""
    report = folder / "run.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers]
    done = subprocess.run(
        [*command, str(HERE / "worker_steps"), f"--tfperf-report={report}"],
        cwd=HERE / "worker_steps",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout)
    tests = json.loads(report.read_text())["tests"]
    assert not any(test["shared_cpu"] for test in tests)
    return {
        test["key"]: test["profiles"][0]["metrics"]["step_time"]["value"]
        for test in tests
        if test["profiles"]
    }


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found = {"0": [], "2": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for workers in random.sample(["0", "2"], 2):
                found[workers].append(times(workers, Path(folder)))
    ratios = {}
    for step in found["0"][0]:
        alone, beside = (statistics.median(one[step] for one in found[n]) for n in ("0", "2"))
        ratios[step] = beside / alone
        print(f"{step:30} {alone * 1e3:8.3f} ms  ×{ratios[step]:.3f}")
    print(f"median of {len(ratios)} steps: ×{statistics.median(ratios.values()):.3f}")


if __name__ == "__main__":
    main()
