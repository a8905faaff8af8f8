"""Two Pythons: which packages differ, what the other one is called, and which one is not fit."""

from dataclasses import replace

from helpers.refusals import refusal

import pytest_tfperf
from pytest_tfperf.errors import PairedError
from pytest_tfperf.turn import PROTOCOL
from pytest_tfperf.turns import versions
from pytest_tfperf.turns.versions import (
    Interpreter,
    distinct_name,
    environment_of,
    other_python,
    package_differences,
)

PLUGIN = f"/other/bin/python -m pip install pytest-tfperf=={pytest_tfperf.__version__}"
OURS = Interpreter(
    command="/ours/bin/python",
    prefix="/ours",
    is_venv=True,
    version=(3, 11, 7),
    platform="linux x86_64",
    path=("/usr/lib/python3.11", "/ours/lib/python3.11/site-packages"),
    packages={"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "python": "3.11.7", "zlib": "1"},
    modules=("pytest", "tensorflow"),
    protocol=PROTOCOL,
)
THEIRS = replace(OURS, command="/other/bin/python", prefix="/other")


def with_packages(**changed):
    """The other Python; None takes a package away."""
    packages = {**OURS.packages, **{name.replace("_", "-"): one for name, one in changed.items()}}
    return replace(
        THEIRS, packages={name: version for name, version in packages.items() if version}
    )


def test_packages_that_differ():
    cases = [
        ({}, {}),
        ({"zlib": "2", "keras": "3.5.0"}, {"keras": ("3.5.0", "3.15.1"), "zlib": ("2", "1")}),
        ({"tensorflow_cpu": "2.20.0"}, {"tensorflow": ("2.20.0", "2.21.0")}),
        ({"tensorflow_cpu": None, "tensorflow": "2.21.0"}, {}),  # another build of the same
        ({"zlib": None, "absl": "1"}, {"absl": ("1", None), "zlib": (None, "1")}),
    ]
    for changed, found in cases:
        assert package_differences(with_packages(**changed), OURS) == found, changed


def test_the_most_telling_packages_come_first_and_those_that_one_lacks_last():
    theirs = with_packages(
        zlib="2", absl="1", python="3.12.1", numpy="2.0", keras="3.5.0", tensorflow_cpu="2.20.0"
    )
    wanted = ["tensorflow", "keras", "numpy", "python", "zlib", "absl"]
    assert list(package_differences(theirs, OURS)) == wanted


def test_the_name_is_what_tells_the_other_apart():
    cases = [
        ({"keras": "3.5.0", "tensorflow_cpu": "2.20.0"}, "tensorflow 2.20.0"),
        ({"keras": "3.5.0", "zlib": "2"}, "keras 3.5.0"),
        ({"keras": None, "python": "3.12.1"}, "python 3.12.1"),
        ({"zlib": "2"}, "/other/bin/python"),
        ({}, "/other/bin/python"),
    ]
    for changed, name in cases:
        assert distinct_name(with_packages(**changed), OURS) == name, changed


def test_a_python_that_is_not_fit_is_refused_with_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "python").touch()
    named = f"--tfperf-against-python {tmp_path / 'python'}: "
    cases = [
        ({"platform": "darwin arm64"}, "it is a Python for darwin arm64, and this one is for"),
        ({"version": (3, 9, 2)}, "it is Python 3.9.2, and pytest-tfperf needs 3.10 or newer"),
        ({"protocol": None}, f"it does not have this plugin; install it with {PLUGIN}"),
        (
            {"protocol": PROTOCOL + 1, "packages": {"pytest-tfperf": "9.9"}},
            f"its pytest-tfperf (9.9) does not understand this one; install it with {PLUGIN}",
        ),
        ({"protocol": 0}, "its pytest-tfperf (another version) does not understand this one"),
        (
            {"modules": ("pytest",)},
            "it does not have tensorflow; install it with "
            "/other/bin/python -m pip install tensorflow",
        ),
        ({"modules": ()}, "it does not have pytest and tensorflow; install it with"),
        (
            {"packages": {"tensorflow": "2.15.1"}},
            "this is 2.15.1, whose traces do not show what XLA runs on a CPU; install a newer one "
            "with /other/bin/python -m pip install --upgrade tensorflow",
        ),
    ]
    for field, message in cases:
        theirs = replace(THEIRS, **field)
        monkeypatch.setattr(versions, "ask", lambda *_, theirs=theirs: theirs)
        said = refusal(PairedError, other_python, tmp_path / "python", (), {}, OURS)
        assert said.startswith(named), message
        assert message in said, message
        assert "\n" not in said, message


def test_the_other_python_needs_one_framework_of_this_one(monkeypatch, tmp_path):
    (tmp_path / "python").touch()
    tensorflow, jax = ("pytest", "tensorflow"), ("pytest", "jax")
    both, none = (*tensorflow, "jax"), ("pytest",)
    fit = [(jax, jax), (both, jax), (both, tensorflow), (jax, both), (none, none)]
    unfit = [(jax, none, "jax"), (jax, tensorflow, "jax"), (both, none, "tensorflow and jax")]
    for ours, theirs, missing in [*((*pair, "") for pair in fit), *unfit]:
        other = replace(THEIRS, modules=theirs)
        monkeypatch.setattr(versions, "ask", lambda *_, other=other: other)
        arguments = tmp_path / "python", (), {}, replace(OURS, modules=ours)
        if missing:
            said = refusal(PairedError, other_python, *arguments)
            assert f"it does not have {missing}; install it with" in said
        else:
            assert other_python(*arguments) is other


def test_the_folder_of_an_environment_stands_for_its_python(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(versions, "ask", lambda command, *_: asked.append(command) or THEIRS)
    (tmp_path / "bin").mkdir()
    (tmp_path / "real").touch()
    (tmp_path / "bin/python").symlink_to(tmp_path / "real")
    assert other_python(tmp_path, (), {}, OURS) is THEIRS
    assert asked == [str(tmp_path / "bin/python")]  # the link tells its environment


def test_a_process_of_the_other_python_is_in_its_environment():
    same = {
        "PATH": "/ours/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": "/ours",
        "PYTHONHOME": "/ours",
        "PYTHONPATH": "/project",
        "HOME": "/root",
    }
    kept = {"PYTHONPATH": "/project", "HOME": "/root"}
    assert environment_of(THEIRS, same, OURS) == {
        **kept,
        "PATH": "/other/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": "/other",
    }
    system = replace(THEIRS, command="/usr/bin/python3", prefix="/usr", is_venv=False)
    assert environment_of(system, same, OURS) == {**kept, "PATH": "/usr/bin:/bin"}
