"""
Compare commits of Keras whose effect on the time is known, or one commit with itself.

    python benchmarks/keras_commits.py CHECKOUT commits [COMMIT …]
    python benchmarks/keras_commits.py CHECKOUT layers RUNS

CHECKOUT is a git repository of Keras with its history. `commits` compares each commit with its parent, in both directions, by the test
in benchmarks/keras_steps/test_commits.py that concerns it. `layers` compares the newest commit with itself, by the steps of Keras' own
benchmarks of layers, one of them a run. Shown are all checks that are not PASS, those of step_time, and the wall time.
"""

import argparse
import collections
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = Path(__file__).parent / "keras_steps"
COMMITS = {
    "75cd954658": "test_eager_layers",
    "ff1fd2848d": "test_predict",
    "d72e81d1f1": "test_logs",
    "0d96e54d70": "test_fit",
}
SUITES = (
    *("core", "conv", "normalization", "pooling", "activation"),
    *("merge", "attention", "regularization", "reshaping", "rnn"),
)
INI = "[pytest]\npythonpath = ..\n"
GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.invalid")


def git(folder, *arguments):
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


def add_branch(folder, name, commit, test):
    """Make a branch of a commit with the test in it."""
    git(folder, "checkout", "-q", "-b", name, commit)
    (folder / "perf").mkdir(exist_ok=True)
    (folder / "perf" / "pytest.ini").write_text(INI)
    shutil.copy(STEPS / test, folder / "perf")
    git(folder, "add", "-f", "perf")
    git(folder, "commit", "-qm", "Add a test")


def compared(folder, ref, test, **variables):
    """Compare the checkout with a ref, print what is not PASS, and return the count of verdicts."""
    report = folder.with_suffix(".json")
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "tfperf", "-p", "no:cacheprovider", "-c", "perf/pytest.ini"]
    begin = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options, f"perf/{test}"),
            *("--tfperf-against", ref, f"--tfperf-report={report}"),
        ],
        cwd=folder,
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"  status {done.returncode} after {time.monotonic() - begin:.0f} s", flush=True)
    if not report.exists():
        sys.exit(done.stdout + done.stderr)
    verdicts = collections.Counter()
    for found in json.loads(report.read_text())["tests"]:
        for check in found["checks"]:
            verdicts[check["verdict"]] += 1
            if check["verdict"] != "PASS" or check["metric"] == "step_time":
                print(f"  {found['key']}: {check['verdict']}: {check['message']}", flush=True)
    return verdicts


def compare_commits(folder, commits):
    for commit in commits:
        for name, revision in (("before", f"{commit}^"), ("after", commit)):
            add_branch(folder, f"{name}-{commit}", revision, "test_commits.py")
        for here, there in itertools.permutations((f"after-{commit}", f"before-{commit}")):
            git(folder, "checkout", "-q", here)
            print(f"{here} against {there}", flush=True)
            compared(folder, there, f"test_commits.py::{COMMITS[commit]}")


def compare_same_commit(folder, runs):
    add_branch(folder, "there", "HEAD", "test_layers.py")
    git(folder, "checkout", "-q", "-b", "here")
    git(folder, "commit", "-qm", "Change nothing", "--allow-empty")
    total = collections.Counter()
    for n, suite in zip(range(runs), itertools.cycle(SUITES), strict=False):
        number = str(n // len(SUITES))
        print(f"run {n + 1}, {suite} {number}", flush=True)
        total += compared(folder, "there", "test_layers.py", SUITE=suite, NUMBER=number)
    print(dict(total))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("checkout", type=Path)
    subject = parser.add_subparsers(dest="subject", required=True)
    subject.add_parser("commits").add_argument("commits", nargs="*", default=list(COMMITS))
    subject.add_parser("layers").add_argument("runs", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "keras"
        source = str(arguments.checkout.resolve())
        subprocess.run(["git", "clone", "-q", "--shared", source, str(folder)], check=True)
        if arguments.subject == "commits":
            compare_commits(folder, arguments.commits)
        else:
            compare_same_commit(folder, arguments.runs)


if __name__ == "__main__":
    main()
