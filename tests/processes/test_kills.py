"""
`kill -9` at each call of the operating system that writes or removes: each file is whole, git sees nothing, the next run completes it.

benchmarks/kills.py kills at random times, and the processes of paired runs too.
"""

import os
import shutil
import subprocess
import sys

import pytest
from helpers.builders import profile, record_of, run_of
from helpers.git_repository import git, repository
from helpers.paths import ROOT, TESTS

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run

# starts once, and runs the command in a child for each kill
DRIVER = """
import os, signal, sys
from pathlib import Path
from helpers.faults import REMOVING, WRITING, failing
from pytest_tfperf.baseline import record
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.html import page

folder, *words = sys.argv[1:]
for line in sys.stdin:
    child = os.fork()
    if not child:
        with failing(Path(folder), int(line), signal.SIGKILL, kinds=WRITING + REMOVING):
            os._exit(main(words))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr, flush=True)
"""
FILES = ("a/test_x.py", "b/test_y.py")


@pytest.fixture
def project(tmp_path):
    """A repository with baselines, and a run with other ones."""
    root = repository(tmp_path / "project", {**dict.fromkeys(FILES, ""), "page.html": "old"})
    for n in range(2):
        tests = [record_of(profile(retraces=n, step_time=1 + n / 100), file=file) for file in FILES]
        write_run(run_of(*tests, second=n), tmp_path / f"{n}.json")
    assert main(["accept", str(tmp_path / "0.json"), "--rootdir", str(root)]) == 0
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "baselines")
    return root


@pytest.fixture
def killed_at(tmp_path):
    """Runs a command and kills it before its n-th call; gives its exit code."""
    drivers = []

    def start(words):
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, ROOT)))}
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path / "project"), *words],
            env={**variables, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        drivers.append(driver)

        def killed_at(n):
            driver.stdin.write(f"{n}\n")
            driver.stdin.flush()
            return int(driver.stderr.readline())

        return killed_at

    yield start
    for driver in drivers:
        driver.communicate()


def content(root):
    files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.nightly
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "words",
    [["accept", "1.json", "--rootdir", "project"], ["report", "1.json", "-o", "project/page.html"]],
    ids=lambda words: words[0],
)
def test_at_each_call(project, killed_at, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(project, tmp_path / "before")
    old = content(project)
    assert main(words) == 0
    new = content(project)
    changed = {f" M {name}" for name in new if new[name] != old[name]}
    assert len(changed) == (4 if words[0] == "accept" else 1)
    kill_at, n_kills, n_left = killed_at([str(word) for word in words]), 0, 0
    while True:
        shutil.rmtree(project)
        shutil.copytree(tmp_path / "before", project)
        status = kill_at(n_kills + 1)
        found = content(project)
        assert {
            name: found[name] for name in old if found[name] not in (old[name], new[name])
        } == {}
        status_lines = git(project, "status", "--porcelain", "--untracked-files=all").splitlines()
        seen = {line for line in status_lines if ".tfperf-tmp-" not in line}
        assert seen <= changed
        if status == 0:
            break
        n_kills += 1
        n_left += found.keys() != old.keys()
        assert main(words) == 0
        assert {name: text for name, text in content(project).items() if name in old} == new
    assert n_kills > 8
    assert n_left > n_kills / 3
