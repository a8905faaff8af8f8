"""
What the installed plugin costs a project that does not use it.

    python benchmarks/startup.py

Runs pytest on one empty test, with `-p tfperf` and without, in turn; medians of 20 runs each. Other plugins of this environment
are left out of both, since one of them takes longer than all the rest.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 20


def seconds(folder, *arguments):
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "test_empty.py").write_text("def test_empty():\n    pass\n")
    times = {"with": [], "without": []}
    for _ in range(RUNS + 1):
        times["with"].append(seconds(folder, "-p", "tfperf"))
        times["without"].append(seconds(folder))
with_plugin, without = (statistics.median(times[name][1:]) for name in ("with", "without"))
differences = sorted(a - b for a, b in zip(times["with"][1:], times["without"][1:], strict=True))
print(
    f"with the plugin {with_plugin * 1e3:.0f} ms, without {without * 1e3:.0f} ms: {(with_plugin - without) * 1e3:+.1f} ms ({RUNS} alternating runs)"
)
print(
    f"difference pair by pair: median {statistics.median(differences) * 1e3:+.1f} ms, from {differences[0] * 1e3:+.1f} to {differences[-1] * 1e3:+.1f} ms"
)
