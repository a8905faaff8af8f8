"""
Measure the cost of the installed plugin for a project that does not use it.

    python benchmarks/startup.py

Runs pytest on one empty test, alternately with `-p tfperf` and with an empty plugin, and prints
medians of 20 runs each. Where valgrind is installed, callgrind counts the instructions of one run
of each. Both kinds of run leave out all other plugins of the environment, and look a plugin up in
the metadata of all packages, as each run of pytest does.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 20
PLUGIN, NONE = ("-p", "tfperf"), ("-p", "empty_plugin")
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")


def run_pytest(folder, arguments, prefix=()):
    """Run pytest in a folder, with compiled modules, and return its standard error."""
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONHASHSEED": "0",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.stderr


def seconds(folder, arguments):
    """Return the wall time of a run."""
    start = time.perf_counter()
    run_pytest(folder, arguments)
    return time.perf_counter() - start


def instructions(folder, arguments):
    """Return the number of instructions of a run, counted by callgrind."""
    return int(re.search(r"Collected : (\d+)", run_pytest(folder, arguments, CALLGRIND))[1])


def measure_times(folder):
    """Print wall times with the plugin and without, and their differences pair by pair."""
    pairs = [(seconds(folder, PLUGIN), seconds(folder, NONE)) for _ in range(RUNS + 1)][1:]
    with_plugin, without = (statistics.median(times) for times in zip(*pairs, strict=True))
    differences = sorted(first - second for first, second in pairs)
    print(
        f"with the plugin {with_plugin * 1e3:.0f} ms, without {without * 1e3:.0f} ms: "
        f"{(with_plugin - without) * 1e3:+.1f} ms ({RUNS} alternating runs)"
    )
    print(
        f"difference pair by pair: median {statistics.median(differences) * 1e3:+.1f} ms, "
        f"from {differences[0] * 1e3:+.1f} to {differences[-1] * 1e3:+.1f} ms"
    )


def count_instructions(folder):
    """Print instructions with the plugin and without, if callgrind can count them."""
    if shutil.which(CALLGRIND[0]) is None:
        print("instructions are not counted: valgrind is not installed")
        return
    with_plugin, without = instructions(folder, PLUGIN), instructions(folder, NONE)
    print(
        f"instructions with the plugin {with_plugin / 1e6:.1f} million, without "
        f"{without / 1e6:.1f} million: {with_plugin / without - 1:+.1%} (callgrind)"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_empty.py").write_text("def test_empty():\n    pass\n")
        Path(folder, "empty_plugin.py").touch()
        measure_times(folder)
        count_instructions(folder)
