"""A project under git whose tests run in pairs, and what is left of a run."""

import hashlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from helpers.git_repository import repository, write
from helpers.paths import TESTS
from helpers.processes import until, with_variable

_RUN = "TFPERF_TEST_RUN"
INI = "[pytest]\npythonpath = src\naddopts = -p tfperf -p no:cacheprovider --strict-markers -W error\n"


class Project:
    """
    A repository: `there` are the files of its one commit, `here` those that the working tree has changed.

    Runs have a folder for temporary files of their own, and so does what they leave.
    """

    def __init__(self, folder, there, here, plugin="helpers.fake_profiler"):
        self.path = repository(folder / "project", {"pytest.ini": INI, **there})
        self.folder = folder
        write(self.path, here)
        self._plugin = plugin

    def environment(self, run, **variables):
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        kept = {
            key: text
            for key, text in os.environ.items()
            if not key.startswith(("PYTEST", "GIT_", "COV_"))
        }
        own = {
            "TMPDIR": str(temporary),
            "COLUMNS": "200",
            "PYTHONPATH": os.pathsep.join(
                [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            ),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        return {**kept, **own, "PYTHONDONTWRITEBYTECODE": "1", _RUN: run, **variables}

    def start(self, *arguments, against="HEAD", cwd=".", python=sys.executable, **variables):
        """A run of a Python that is under way."""
        plugin = ["-p", self._plugin] if self._plugin else []
        return Run(
            self,
            [*plugin, *([f"--tfperf-against={against}"] if against else []), *arguments],
            cwd,
            variables,
            python,
        )

    def run(self, *arguments, **options):
        """A run that has ended, with nothing left of it."""
        return self.start(*arguments, **options).ended()


class Run:
    def __init__(self, project, arguments, cwd, variables, python=sys.executable):
        self.project = project
        self.id = uuid.uuid4().hex
        self.file = project.folder / f"{self.id}.json"
        self._output = (project.folder / f"{self.id}.out").open("w+")
        options = [f"--tfperf-report={self.file}", f"--basetemp={project.folder / self.id}"]
        self.process = subprocess.Popen(
            [python, "-m", "pytest", *options, *map(str, arguments)],
            cwd=project.path / cwd,
            env=project.environment(self.id, **variables),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self):
        self.status = self.process.wait(300)
        self._output.seek(0)
        self.text = self._output.read()
        self._output.close()
        until(lambda: not self.left())
        return self

    def processes(self):
        """Those of this run, without the first."""
        return [pid for pid in with_variable(_RUN, self.id) if pid != self.process.pid]

    def child(self, version):
        """The process that runs this version, `tree` or `ref`."""
        folder = {"tree": str(self.project.path), "ref": str(self.project.folder / "tmp")}[version]
        children = [pid for pid in self.processes() if "--tfperf-child" in _command(pid)]
        return next(
            (
                pid
                for pid in children
                if str(Path(f"/proc/{pid}/cwd").readlink()).startswith(folder)
            ),
            None,
        )

    def cleanup(self):
        return next(pid for pid in self.processes() if "cleanup_script.py" in _command(pid))

    def left(self):
        """What is left: processes and temporary files, but for the files that are locked."""
        files = (self.project.folder / "tmp").iterdir()
        return [
            *self.processes(),
            *(file for file in files if not file.name.startswith("tfperf-locks-")),
        ]

    def record(self, test):
        """That of the test whose node id ends so."""
        [record] = [
            one
            for one in json.loads(self.file.read_text())["tests"]
            if f"/{one['nodeid']}".endswith((f"/{test}", f"::{test}"))
        ]
        return record

    def checks(self, test, kind="against"):
        """(profile, metric): verdict and message."""
        found = self.record(test)["checks"]
        return {
            (check["profile"], check["metric"]): (check["verdict"], check["message"])
            for check in found
            if check["kind"] == kind
        }

    def words(self, test):
        """What -v says of a test, whose node id ends so."""
        return [
            line.partition(f"{test} ")[2].split()[0]
            for line in self.text.splitlines()
            if f"{test} " in line and line.endswith("%]")
        ]


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def picture(root):
    """Everything in a working tree and its .git, by content, mode and time of change."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            _content(path),
        )
        for path in sorted(root.rglob("*"))
        if path.name != "__pycache__"
    }


def _content(path):
    if path.is_symlink():
        return path.readlink()
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
