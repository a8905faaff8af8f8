"""
Record step times of fresh processes, as in CI, for benchmarks/stored.py, with pytest-benchmark beside them.

    pip install pytest-benchmark
    python benchmarks/record_runs.py DATA.jsonl SAME SLOWED

Records SAME runs of the same code, and SLOWED runs slowed down by 5 %, in mixed order, of the three steps in
benchmarks/paired_steps. A run is a new process of pytest with tfperf, then one with pytest-benchmark:
`--benchmark-compare --benchmark-compare-fail=median:5%` against the stored file of its last run of the same code.
A line of the data is a run: {"planted", "when", "machine", "ours": {step: seconds}, "theirs": {step: seconds},
"alarms": [step], or null if nothing was stored yet}. The command adds to the file.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from pytest_tfperf.machine.description import describe

HERE = Path(__file__).parent
STEPS = ("matmul_0_3ms", "convolution_5ms", "convolution_50ms")
COMPARE = ["--benchmark-compare", "--benchmark-compare-fail=median:5%"]


def pytest(plugin, arguments, planted):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        plugin,
        "-p",
        "no:cacheprovider",
        *map(str, arguments),
    ]
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PLANTED": str(planted),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def ours(planted, folder):
    report = folder / "run.json"
    said = pytest(
        "tfperf",
        ["paired_steps", "-k", "matmul or convolution", f"--tfperf-report={report}"],
        planted,
    )
    if not report.exists():
        raise SystemExit(said)
    tests = json.loads(report.read_text())["tests"]
    return {
        test["key"].removeprefix("test_"): test["profiles"][0]["metrics"]["step_time"]["value"]
        for test in tests
    }


def theirs(planted, folder, has_stored):
    """Seconds by step, and the steps reported as slower; a run of slower code is not stored."""
    result, stored = folder / "result.json", folder / "stored"
    keep = [] if planted else ["--benchmark-autosave"]
    said = pytest(
        "benchmark",
        [
            "benchmark_steps",
            f"--benchmark-storage=file://{stored}",
            f"--benchmark-json={result}",
            *keep,
            *(COMPARE if has_stored else []),
        ],
        planted,
    )
    if not result.exists():
        raise SystemExit(said)
    seconds = {
        bench["param"]: bench["stats"]["median"]
        for bench in json.loads(result.read_text())["benchmarks"]
    }
    result.unlink()
    alarms = sorted(set(re.findall(r"test_step\[(\w+)\] \S+ - Field 'median' has failed", said)))
    if ("regressed" in said) != bool(alarms):
        raise SystemExit(f"what it says is not understood:\n{said}")
    return seconds, alarms if has_stored else None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("same", type=int)
    parser.add_argument("slowed", type=int)
    options = parser.parse_args()
    wanted = [0.0] * options.same + [0.05] * options.slowed
    random.shuffle(wanted)
    machine = describe()["machine"]
    with tempfile.TemporaryDirectory() as name:
        folder, has_stored = Path(name), False
        for planted in [0.0, *wanted]:
            line = {
                "planted": planted,
                "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "machine": machine,
            }
            line["ours"] = ours(planted, folder)
            line["theirs"], line["alarms"] = theirs(planted, folder, has_stored)
            has_stored = True
            with options.data.open("a", encoding="utf-8") as data:
                data.write(json.dumps(line) + "\n")
            print(line["when"], planted, line["ours"], line["alarms"], flush=True)


if __name__ == "__main__":
    main()
