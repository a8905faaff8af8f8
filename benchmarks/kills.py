"""
Kill what writes and measures with SIGKILL at random times, and count what is lost or left.

    nice python benchmarks/kills.py [OPERATION ...] [--kills 200] [--seed 0]

Operations are update (`pytest --tfperf-update -n 2`), against (`pytest --tfperf-against HEAD`),
compare (`tf_profile.compare` with a process for each variant) and accept (`tfperf accept`). Each is
killed so often, its first process alone and its whole process group in turn, at a time that is
evenly spread over its duration; every second pair of kills of update and accept falls into the half
second after it began to write. After each kill the baselines are read and compared with those
before. After every tenth, the operation runs once to its end, and what is left then is counted.

Profiles are those of tests/helpers, without TensorFlow; all else is real.
"""

import argparse
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from helpers.builders import profile, record_of, run_of  # noqa: E402
from helpers.git_repository import commit, git, repository  # noqa: E402
from helpers.processes import with_variable  # noqa: E402

from pytest_tfperf.baseline.store import read_file  # noqa: E402
from pytest_tfperf.errors import BaselineError  # noqa: E402
from pytest_tfperf.report.run_file import write_run  # noqa: E402

N_FILES = 20
"""Test files, each in a folder of its own: with times, an update writes three times as many files."""
FILE = "tests/{0}/test_{0}.py"
EVERY = 10
"""Kills between two runs to the end."""
WRITING_S = 0.5
PATIENCE_S = 20.0
"""Seconds for the processes of a killed run to end; their tests have 5 s to tear down."""
CHANGED = re.compile(r" M tests/\d+/__tfperf__/((timing|detail)/)?[\w.-]+\.json")
MARK = "TFPERF_KILLS"
"""Environment variable of a run's processes."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "tfperf")
SUITES = {
    "update": (
        "import os\n\ndef test_step(tf_profile):\n"
        "    tf_profile(1.0, retraces=int(os.environ['N_RUN']))\n"
    ),
    "against": "def test_step(tf_profile):\n    tf_profile(1.0)\n",
    "compare": (
        "import time\n\ndef test_two(tf_profile):\n    step = lambda: time.sleep(0.002)\n"
        "    tf_profile.compare({'a': step, 'b': step}, max_seconds=0.2)\n"
    ),
    "accept": "",
}
PLUGINS = {"update": "fake", "against": "fake", "compare": "light", "accept": None}
ARGUMENTS = {
    "update": ("-p", "xdist", "-n", "2", "--tfperf-update", "--tfperf-report", "out/run.html"),
    "against": ("--tfperf-against=HEAD",),
    "compare": (),
}


class Project:
    """A repository in which one operation runs, with a folder for temporary files of its own."""

    def __init__(self, operation, folder):
        self._operation, self._folder = operation, folder
        n_files = N_FILES if operation in ("update", "accept") else 1
        files = {FILE.format(n): SUITES[operation] for n in range(n_files)}
        if PLUGINS[operation] == "light":
            files["conftest.py"] = "from helpers.light_profiler import *\n"
        files[".gitignore"] = "out/\n__pycache__/\n"
        self.path = repository(folder / "project", {"pytest.ini": "[pytest]\n", **files})
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._runs = itertools.count()
        self.run_to_end()
        commit(self.path, "baselines", {})
        self.entries = self.read()

    def command(self, n_run):
        """Return the command; each run changes each baseline."""
        if self._operation == "accept":
            measured = profile(retraces=n_run, step_time=1.0)
            tests = [record_of(measured, file=FILE.format(n)) for n in range(N_FILES)]
            run = self.path / "out" / "run.json"
            write_run(run_of(*tests, second=n_run), run)
            return [sys.executable, "-m", "pytest_tfperf.cli.main", "accept", str(run)]
        kind = PLUGINS[self._operation]
        plugin = ["-p", f"helpers.{kind}_profiler"] if kind == "fake" else []
        return [sys.executable, "-m", "pytest", *OPTIONS, *plugin, *ARGUMENTS[self._operation]]

    def start(self):
        """Start the operation in a process group of its own; return the process and its mark."""
        mark, n_run = uuid.uuid4().hex, next(self._runs)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
            MARK: mark,
            "N_RUN": str(n_run),
        }
        process = subprocess.Popen(
            self.command(n_run),
            cwd=self.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return process, mark

    def run_to_end(self):
        """Run the operation to its end, and return its seconds."""
        began = time.perf_counter()
        process, _ = self.start()
        output, _ = process.communicate()
        assert process.returncode == 0, output.decode()
        return time.perf_counter() - began

    def read(self):
        """Return the runs of each entry; an error is that of a file that cannot be read."""
        return {
            (str(path.relative_to(self.path)), key): len(entry.get("runs", ()))
            for path in self.path.glob("tests/*/__tfperf__/**/*.json")
            for key, entry in read_file(path).get("tests", {}).items()
        }

    def left(self):
        """Return temporary files and folders, and locks of git."""
        git_locks = list((self.path / ".git").rglob("*.lock"))
        ours = [*git_locks, *self.path.rglob("*tfperf-*")]
        others = [path for path in self.temporary.iterdir() if "tfperf-locks-" not in path.name]
        return ours + [path for path in others if not path.name.startswith("pytest-of-")]

    def writes(self):
        """Return whether a baseline is being written."""
        return any(self.path.glob("tests/*/__tfperf__/.tfperf-tmp-*"))

    def seen_by_git(self):
        """Return what git would add, but for baselines."""
        status = git(self.path, "status", "--porcelain", "--untracked-files=all")
        return [line for line in status.splitlines() if not CHANGED.match(line)]


def kill_once(project, seconds, whole_group, writing):
    """
    Start the operation, kill it at a time, and wait for the rest of it to end.

    The seconds begin when it does or, with `writing`, when it begins to write.
    """
    process, mark = project.start()
    while writing and process.poll() is None and not project.writes():
        time.sleep(0.002)
    time.sleep(seconds)
    if process.poll() is not None:
        process.communicate()
        return "ended before"
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while with_variable(MARK, mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return "processes left" if with_variable(MARK, mark) else "killed"


def changes(project):
    """Return what became of the baselines since they were last read."""
    try:
        now = project.read()
    except BaselineError as error:
        print(error, flush=True)
        return ["baselines broken"]
    lost = [key for key in project.entries if key not in now]
    shorter = [key for key in now if now[key] < project.entries.get(key, 0)]
    project.entries = now
    return ["entries lost"] * len(lost) + ["histories shorter"] * len(shorter)


def count(operation, n_kills, chance):
    """Return the counts of one operation."""
    found = Counter()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(operation, Path(folder))
        duration_s = project.run_to_end()
        n_tries = 0
        while found["killed"] < n_kills:
            n_tries += 1
            writing = n_tries % 4 > 1 and operation in ("update", "accept")
            seconds = chance.uniform(0, WRITING_S if writing else duration_s)
            found[kill_once(project, seconds, n_tries % 2 == 0, writing)] += 1
            found.update(changes(project))
            found["killed while it had temporary files"] += bool(project.left())
            seen = project.seen_by_git()
            found["seen by git"] += len(seen)
            if seen:
                print(operation, "seen by git:", *seen, sep="\n  ", flush=True)
            if n_tries % EVERY == 0 or found["killed"] == n_kills:
                found["runs to the end"] += 1
                duration_s = project.run_to_end()
                found.update(changes(project))
                # a temporary folder of a killed run stays for a day
                left = [path for path in project.left() if "tfperf-tmp-" not in path.name]
                if left:
                    print(operation, *left, sep="\n  ", flush=True)
                found["left after the next run"] += len(left)
                found["seen by git"] += len(project.seen_by_git())
    return found


COUNTS = (
    "killed",
    "ended before",
    "runs to the end",
    "baselines broken",
    "entries lost",
    "histories shorter",
    "killed while it had temporary files",
    "left after the next run",
    "processes left",
    "seen by git",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("operations", nargs="*", default=[], metavar="OPERATION")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for operation in given.operations or list(SUITES):
        found = count(operation, given.kills, random.Random(given.seed))
        print(f"{operation}: " + ", ".join(f"{name} {found[name]}" for name in COUNTS), flush=True)


if __name__ == "__main__":
    main()
