"""`tfperf doctor` from outside: once for real, and where it cannot run."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]


def doctor(folder, *arguments, **environment):
    """Run it in a folder that is no project, with no program in its path, and a temporary folder that shows what is left."""
    scratch = folder / "scratch"
    scratch.mkdir()
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest_tfperf.cli.main", "doctor", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**given, "PATH": str(folder), "TMPDIR": str(scratch), **environment},
    )
    # TensorFlow loads the code that AutoGraph writes from there, and Python caches it.
    assert [path for path in scratch.iterdir() if path.name != "__pycache__"] == []
    return done


@pytest.mark.nightly
def test_a_real_machine(tmp_path):
    done = doctor(
        tmp_path,
        "--seconds",
        "1",
        "--json",
        PYTEST_ADDOPTS="--no-such-option",
        PYTEST_PLUGINS="no_such_plugin",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["format"], found["good"]) == (2, True)
    assert found["machine"]["machine"]["tensorflow"]
    installed = {"TensorFlow"} | ({"JAX"} if importlib.util.find_spec("jax") else set())
    checks = found["profiler"]["checks"]
    assert [check["passed"] for check in checks] == [True] * 4 * len(installed)
    assert {check["framework"] for check in checks} == installed
    assert (
        found["profiler"]["checks"][0]["found"]
        == "5 steps marked in each of 2 sessions, 5 and 5 found"
    )
    assert found["conditions"]["can_stop"]
    turns = found["noise"]["turns"]
    assert [kind["pinned"] for kind in turns] == (
        [True, False] if found["conditions"]["can_pin"] else [False]
    )
    for kind in turns:
        assert kind["noise"]["n"] >= 1
        assert kind["noise"]["step_s"] > 0
        assert kind["noise"]["ratio"] > 0
    assert [kind["pinned"] for kind in found["resolution"]["turns"]] == [
        kind["pinned"] for kind in turns
    ]


HIDE = """
import sys
from importlib.machinery import PathFinder


class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {names}
        return None if hidden else super().find_spec(name, path, target)


sys.meta_path[:] = [Rest if finder is PathFinder else finder for finder in sys.meta_path]
"""


def hidden(folder, *names):
    """The variables of a Python that does not find these modules; it reads the file at its start."""
    (folder / "sitecustomize.py").write_text(HIDE.replace("{names}", repr(names)))
    return {"PYTHONPATH": str(folder)}


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_without_tensorflow_it_checks_jax(tmp_path):
    done = doctor(tmp_path, "--seconds=1", "--json", **hidden(tmp_path, "tensorflow", "keras"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["machine"]["machine"]) == {"accelerators", "cpu", "cores", "jax", "system"}
    assert found["machine"]["others"] == {}
    assert [check["framework"] for check in found["profiler"]["checks"]] == ["JAX"] * 4
    assert all(kind["noise"]["step_s"] > 0 for kind in found["noise"]["turns"])


def test_without_a_framework_that_works_it_says_what_to_install(tmp_path):
    for name, names, said in (
        ("none", ("tensorflow", "jax"), "neither TensorFlow nor JAX is installed"),
        ("broken", ("jax",), "TensorFlow cannot be imported (no TensorFlow here)"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tensorflow.py").write_text("raise ImportError('no TensorFlow here')")
        done = doctor(folder, **hidden(folder, *names))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"tfperf: {said}")
        assert "pip install" in done.stderr
