"""Two users on one machine, with one folder for temporary files: neither fails nor waits because of the other."""

import json
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.paths import ROOT, TESTS

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]

FIRST, SECOND, SUPERUSER = 23456, 34567, 0
SUITE = """
import os
from pytest_tfperf.machine.locks import held

def test_step(tf_profile):
    with held(["cpu"], print) as waited:
        print(f"waited: {waited}")
    tf_profile(float(os.environ["STEP"]), retraces=0)
"""


PYTHONS = (sys.executable, "/usr/bin/python{}.{}".format(*sys.version_info))
PYTHONPATH = os.pathsep.join(map(str, (TESTS, ROOT, sysconfig.get_path("purelib"))))


@pytest.fixture(scope="module")
def python():
    """A Python of this version that another user can run."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    for path in PYTHONS:
        command = [path, "-c", "import numpy, pytest_tfperf.cli.main"]
        with suppress(OSError):
            if subprocess.run(command, env={"PYTHONPATH": PYTHONPATH}, **of(FIRST)).returncode == 0:
                return path
    pytest.skip(f"no Python {sys.version_info[:2]} is open to other users: {PYTHONS}")


def of(user):
    return {"user": user, "group": user, "extra_groups": [], "cwd": ROOT}


@pytest.fixture
def folder():
    """A folder that all users can enter, as none of pytest's is, with one for their temporary files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        yield folder


def project_of(folder, owner, mode=0o755):
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_model.py").write_text(SUITE)
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    return folder


@pytest.fixture
def started(python):
    """Starts an update of a user's, whose step takes so long."""
    options = ["-p", "tfperf", "-p", "helpers.fake_profiler", "-rA", "--tfperf-update"]

    def start(user, project, step, umask=0o022):
        return subprocess.Popen(
            [python, "-m", "pytest", "-q", *options, "--tfperf-report=run.html"],
            **{**of(user), "cwd": project},
            umask=umask,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": PYTHONPATH,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "TMPDIR": str(project.parent / "tmp"),
                "HOME": str(project),
                "USER": f"user-{user}",
                "STEP": str(step),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def ended(process):
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def histories(project):
    [path] = (project / "__tfperf__" / "timing").iterdir()
    [entry] = json.loads(path.read_text())["tests"].values()
    return [run["step_time"] for run in entry["runs"]]


def left(folder):
    return [path for path in folder.rglob("*tfperf-*") if "tfperf-locks-" not in str(path)]


def test_each_on_a_project_of_its_own(folder, started):
    projects = {user: project_of(folder / str(user), user) for user in (FIRST, SECOND)}
    processes = [started(user, project, 1.0) for user, project in projects.items()]
    for status, output in map(ended, processes):
        assert status == 0, output
        assert "waited: False" in output
    for user, project in projects.items():
        assert histories(project) == [1.0]
        locks = (folder / "tmp" / f"tfperf-locks-{user}").stat()
        assert (locks.st_uid, stat.S_IMODE(locks.st_mode)) == (user, 0o700)
    assert left(folder) == []


def test_root_after_a_user_and_the_user_again(folder, started):
    """As with sudo, which keeps HOME: files of root's in folders of the user's hinder nobody."""
    project = project_of(folder / "one", FIRST)
    for n, user in enumerate((FIRST, SUPERUSER, FIRST)):
        status, output = ended(started(user, project, 1 + n / 1000))
        assert status == 0, output
    assert histories(project) == [1.0, 1.001, 1.002]
    assert left(folder) == []


def test_a_user_after_root_is_told(folder, started):
    project = project_of(folder / "one", FIRST)
    assert ended(started(SUPERUSER, project, 1.0))[0] == 0
    before = {path: path.read_bytes() for path in project.glob("__tfperf__/**/*.json")}
    status, output = ended(started(FIRST, project, 1.001))
    assert status == 1
    [said] = [line for line in output.splitlines() if line.startswith("tfperf: baseline /")]
    assert said.endswith(
        "cannot be written: Permission denied; mend that, and run the same again: it writes the rest"
    )
    assert {path: path.read_bytes() for path in project.glob("__tfperf__/**/*.json")} == before
    for path in [project / "__tfperf__", *(project / "__tfperf__").rglob("*")]:
        os.chown(path, FIRST, FIRST)
    assert ended(started(FIRST, project, 1.002))[0] == 0
    assert histories(project) == [1.0, 1.002]
