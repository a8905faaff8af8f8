"""
Measure how long `--tfperf-against` takes for 1, 10 and 40 profiled tests of the same code.

    python benchmarks/wall_time.py [--other FOLDER] [TESTS ...]

The steps are those of wall_time_steps.py. FOLDER is a checkout of another version of the plugin, whose runs
alternate with those of the installed one. A line shows the wall time of each and the verdicts of the step times.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = Path(__file__).parent / "wall_time_steps.py"
TESTS = """
import pytest
from steps import STEPS

@pytest.mark.parametrize("n", range({tests}))
def test_step(tf_profile, n):
    tf_profile(list(STEPS.values())[n % len(STEPS)]())
"""
GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.invalid")


def write_project(folder, tests):
    """Write a git repository with that many profiled tests."""
    shutil.copy(STEPS, folder / "steps.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_wall.py").write_text(TESTS.format(tests=tests))
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Add steps"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)


def compared(folder, plugin):
    """Compare the project with its own commit; return the wall time in seconds and a count of the verdicts."""
    report = folder.with_suffix(".json")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if plugin:
        environment["PYTHONPATH"] = plugin
    begin = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--tfperf-against=HEAD", "--tfperf-only=timing", f"--tfperf-report={report}"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begin
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    checks = [check for test in json.loads(report.read_text())["tests"] for check in test["checks"]]
    return seconds, collections.Counter(check["verdict"] for check in checks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--other", metavar="FOLDER")
    parser.add_argument("tests", nargs="*", type=int, default=[1, 10, 40])
    arguments = parser.parse_args()
    for tests in arguments.tests:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "project"
            folder.mkdir()
            write_project(folder, tests)
            for label in ["other", "installed"] if arguments.other else ["installed"]:
                plugin = arguments.other if label == "other" else None
                seconds, verdicts = compared(folder, plugin)
                print(f"{tests:3} tests  {label:9} {seconds:6.1f} s  {dict(verdicts)}", flush=True)


if __name__ == "__main__":
    main()
