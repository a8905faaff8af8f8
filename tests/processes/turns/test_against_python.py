"""`--tfperf-against-python` end to end: two real environments with a package of two versions."""

import shlex
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from helpers.git_repository import write
from helpers.paired_project import Project
from helpers.paths import ROOT
from helpers.paths import TESTS as FOLDER
from helpers.processes import until, with_variable

from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns import versions
from pytest_tfperf.turns.versions import ask, other_python

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

TESTS = """
import os, sys
import fakelib
import pytest

@pytest.mark.tfperf(max_regression="5%")
def test_same(tf_profile):
    tf_profile(1.0)

@pytest.mark.tfperf(max_regression="5%")
def test_slower(tf_profile):
    tf_profile(fakelib.SECONDS, graph_ops=fakelib.OPS)

def test_fails_there(tf_profile):
    tf_profile(1.0)
    assert fakelib.OPS == 12

def test_environment(tf_profile):
    assert os.environ["VIRTUAL_ENV"] == sys.prefix
    assert os.environ["PATH"].split(os.pathsep)[0] == f"{sys.prefix}/bin"
    assert fakelib.__file__.startswith(sys.prefix)
    tf_profile(1.0)
"""
LIBRARY = "SECONDS, OPS = {}, {}\n"
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
TIME = ("", "step_time")


def environment(folder, seconds, ops, version):
    """An environment with a version of a package of its own, and the packages of this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    write(
        site,
        {
            "fakelib/__init__.py": LIBRARY.format(seconds, ops),
            f"fakelib-{version}.dist-info/METADATA": METADATA.format("FakeLib", version),
            f"keras-{version}.dist-info/METADATA": METADATA.format("keras", version),
            "others.pth": f"{ROOT}\n{FOLDER}\n{sysconfig.get_path('purelib')}\n",
        },
    )
    return folder / "bin/python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pythons")


@pytest.fixture(scope="module")
def pythons(folder):
    """The Pythons that a run starts in, and that it is compared with."""
    return (
        environment(folder / "here", 1.2, 12, "3.15"),
        environment(folder / "there", 1.0, 10, "3.5"),
    )


@pytest.fixture(scope="module")
def project(folder):
    return Project(folder, {"tests/test_steps.py": TESTS}, {})


def test_the_environment_that_made_a_step_slower_is_found(project, pythons):
    here, there = pythons
    environment = {"VIRTUAL_ENV": str(here.parents[1]), "PATH": f"{here.parent}:/usr/bin:/bin"}
    arguments = ("-v", f"--tfperf-against-python={there.parents[1]}")
    run = project.run(*arguments, against=None, python=here, **environment)
    # the header names both versions of what differs
    [line] = [line for line in run.text.splitlines() if line.startswith("tfperf: against")]
    assert line.startswith(
        f"tfperf: against keras 3.5 ({there}): "
        "keras 3.5 → 3.15, fakelib 3.5 → 3.15; both versions run on "
    )
    assert run.checks("test_same")[TIME][0] == "PASS"
    verdict, message = run.checks("test_slower")[TIME]
    assert verdict == "REGRESSION"
    assert message.startswith("step_time is 20 % slower than keras 3.5: ")
    assert run.checks("test_slower")["", "graph_ops"] == (
        "PASS",
        "graph_ops rose from 10 to 12, which does not gate: "
        "it depends on the packages, which differ; a limit decides it",
    )
    # each process is in its own environment
    assert run.checks("test_environment")[TIME][0] == "PASS"
    verdict, message = run.checks("test_fails_there")["", "against"]
    assert verdict == "UNKNOWN"
    assert message.startswith("on keras 3.5 the test fails:\n")
    assert run.record("test_same")["environment"]["against"] == {
        "name": "keras 3.5",
        "python": str(there),
        "packages": {
            "keras": {"before": "3.5", "after": "3.15"},
            "fakelib": {"before": "3.5", "after": "3.15"},
        },
    }


def test_a_ref_and_another_python_are_compared_at_once(project, pythons):
    write(
        project.path, {"tests/test_steps.py": TESTS.replace("tf_profile(1.0)", "tf_profile(2.0)")}
    )
    arguments = ("-k", "same or slower", f"--tfperf-against-python={pythons[1]}")
    run = project.run(*arguments, python=pythons[0])
    assert "tfperf: against HEAD (" in run.text
    verdict, message = run.checks("test_same")[TIME]
    assert verdict == "REGRESSION"
    assert " slower than HEAD with keras 3.5: " in message
    assert run.checks("test_slower")[TIME][1].startswith(
        "step_time is 20 % slower than HEAD with keras 3.5: "
    )


@pytest.mark.nightly
@pytest.mark.parametrize("cause", ["path", "copy"])
def test_code_of_the_wrong_place_makes_the_comparison_void(project, pythons, cause):
    """The other environment's package comes by PYTHONPATH, or a module of the project is installed there."""
    here, there = pythons
    site = Path(sysconfig.get_path("purelib", vars={"base": str(there.parents[1])}))
    variables = {}
    if cause == "path":
        own = Path(sysconfig.get_path("purelib", vars={"base": str(here.parents[1])}))
        extra = f"import sys; sys.path.insert(0, {str(own)!r})\n"
        made, wanted = (
            {"tests/conftest.py": extra},
            "fakelib is loaded from the environment of the other Python",
        )
    else:
        write(site, {"model.py": ""})
        made, wanted = (
            {
                "src/model.py": "",
                "tests/conftest.py": "import sys\nsys.path.reverse()\nimport model\nsys.path.reverse()\n",
            },
            "a copy of src/model.py",
        )
    write(project.path, made)
    try:
        run = project.run(
            "-k", "same", f"--tfperf-against-python={there}", against=None, python=here, **variables
        )
    finally:
        (project.path / "tests/conftest.py").unlink()
        shutil.rmtree(project.path / "src", ignore_errors=True)
        (site / "model.py").unlink(missing_ok=True)
    verdict, message = run.checks("test_same")["", "against"]
    assert verdict == "UNKNOWN"
    assert f"with {there} " in message
    assert wanted in message


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def script(text):
    return lambda folder: executable(folder / "a", text)


NO_PYTHON = [
    (lambda folder: folder / "none", "there is no such file; name a Python, or the folder"),
    (lambda folder: folder, "has no bin/python; name a Python, or the folder"),
    (script("#!/bin/sh\necho hello\n"), "this is no Python 3 (it answered 'hello')"),
    (script("#!/bin/sh\n"), "this is no Python 3 (it said nothing)"),
    (script("#!/bin/sh\necho '[1]'\n"), "this is no Python 3"),
    (script("\x7fELF\x02 of another processor"), "it cannot be run here ("),
    (script("#!/no/such/shell\n"), "it cannot be run here ("),
]


def test_what_is_no_python_is_refused(tmp_path):
    ours = ask(sys.executable, (), {})
    for make, message in NO_PYTHON:
        path = make(tmp_path)
        with pytest.raises(PairedError) as found:
            other_python(path, (), {}, ours)
        assert str(found.value).startswith(f"--tfperf-against-python {path}: ")
        assert message in str(found.value)
        assert "\n" not in str(found.value)


def test_what_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "_LIMIT_S", 1.0)
    path = executable(tmp_path / "a", "#!/bin/sh\nsleep 300 &\nwait\n")
    variables = {"TFPERF_TEST_HANGS": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with pytest.raises(PairedError, match="it did not answer within 1 s, so it is no Python"):
        ask(str(path), (), variables)
    until(lambda: not with_variable("TFPERF_TEST_HANGS", str(tmp_path)))


def test_a_python_without_the_plugin_or_without_tensorflow_is_refused(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    ours = ask(sys.executable, (), {})
    python = tmp_path / "bare/bin/python"
    for shared, missing in (((), "this plugin"), ((str(ROOT),), " and ".join(ours.modules))):
        with pytest.raises(
            PairedError,
            match=f"it does not have {missing}; install it with {shlex.quote(str(python))} -m pip",
        ):
            other_python(tmp_path / "bare", shared, {"PYTHONPATH": str(ROOT)}, ours)


def test_a_refused_python_ends_the_run_as_an_error_of_usage(project, folder):
    run = project.start("--tfperf-against-python=no-such", against=None)
    run.ended()
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert (
        f"ERROR: --tfperf-against-python {project.path / 'no-such'}: there is no such file"
        in run.text
    )


def test_a_path_that_pytest_takes_for_one_of_tests_is_refused(project, pythons):
    """It would look for the configuration there; beside a path of tests it finds the project's."""
    arguments = ("-p", "tfperf", "--tfperf-against-python", pythons[1])
    run = project.run(*arguments, against=None)
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert f"Write --tfperf-against-python={pythons[1]}, with an equals sign" in run.text
    run = project.run(*arguments, "tests", "-k", "same", against=None, python=pythons[0])
    assert run.status == pytest.ExitCode.OK, run.text
