"""The two versions that a paired run compares: their files, their Python and how they start."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pytest_tfperf
from pytest_tfperf.errors import PairedError
from pytest_tfperf.frameworks.tensorflow import DISTRIBUTIONS, too_old
from pytest_tfperf.turn import PROTOCOL
from pytest_tfperf.turns import interpreter_script
from pytest_tfperf.turns.own_flags import autoclustering_environment
from pytest_tfperf.turns.pytest_child import (
    PytestRun,
    interpreter_flags,
    invocation_arguments,
    same_run,
    shows_output,
    uncovered_environment,
)
from pytest_tfperf.turns.ref_files import write_tree
from pytest_tfperf.turns.worktree import (
    Tree,
    TwoPythons,
    Version,
    is_of_project,
    mapped,
    mapped_argument,
    tree_alone,
)
from pytest_tfperf.values import Json

FLAG = "--tfperf-against-python"
_LIMIT_S = 60.0
_OLDEST = (3, 10)
# they lead another Python to the libraries or the environment of this one
_OF_ONE_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")
_FIRST = ("tensorflow", "jax", "torch", "keras", "numpy", "python")
_SHOWN = 120  # characters of an answer that is not understood


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python, and what it would load."""

    command: str
    """The path that starts it; links are not followed, since they tell environments apart."""
    prefix: str
    """The folder of its environment."""
    is_venv: bool
    version: tuple[int, ...]
    """Python's version, three numbers."""
    platform: str
    """System and processor, as `linux x86_64`."""
    path: tuple[str, ...]
    """Its own sys.path, without entries from PYTHONPATH."""
    packages: Mapping[str, str]
    """Versions of what is installed, by normalised name, with `python`."""
    modules: tuple[str, ...]
    """Those of pytest and the frameworks that it finds."""
    protocol: int | None
    """Its plugin's version of the messages between processes; None without the plugin."""


def ask(command: str, shared: Sequence[str], environment: Mapping[str, str]) -> Interpreter:
    """Return what a Python, with `shared` before its path, says of itself. Raises: PairedError."""
    arguments = [str(interpreter_script.__file__), json.dumps(list(shared))]
    variables = {name: text for name, text in environment.items() if name not in _OF_ONE_PYTHON}
    output = _output([command, *interpreter_flags(other=True), *arguments], variables)
    try:
        answer = msgspec.json.decode(output.strip().rpartition("\n")[2], type=dict[str, Any])
        return msgspec.convert({**answer, "command": command}, Interpreter)
    except msgspec.DecodeError:
        said = f"it answered {output.strip()[-_SHOWN:]!r}" if output.strip() else "it said nothing"
        raise PairedError(f"{FLAG} {command}: this is no Python 3 ({said})") from None


def other_python(
    typed: Path, shared: Sequence[str], environment: Mapping[str, str], ours: Interpreter
) -> Interpreter:
    """Return the Python of a path, or of an environment's folder. Raises: PairedError if unfit."""
    python = typed / "bin" / "python" if typed.is_dir() else typed
    if not python.is_file():
        wanted = f"{typed} has no bin/python" if typed.is_dir() else "there is no such file"
        raise PairedError(
            f"{FLAG} {typed}: {wanted}; name a Python, or the folder of a virtual environment"
        )
    found = ask(os.path.abspath(python), shared, environment)  # noqa: PTH100 - keeps links
    if why := _unfit(found, ours):
        raise PairedError(f"{FLAG} {typed}: {why}")
    return found


def package_differences(
    before: Interpreter, after: Interpreter
) -> dict[str, tuple[str | None, str | None]]:
    """
    Return the versions on either side of each package that differs; None where it is missing.

    Frameworks, Keras, NumPy and Python come first, then what both have, then what one lacks.
    """
    old, new = _by_name(before.packages), _by_name(after.packages)
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    first = [name for name in _FIRST if name in differing]
    others = sorted(
        (name for name in differing if name not in _FIRST),
        key=lambda name: (name not in old or name not in new, name),
    )
    return {name: (old.get(name), new.get(name)) for name in (*first, *others)}


def distinct_name(before: Interpreter, after: Interpreter) -> str:
    """Return the most telling package of `before` that differs, or else its path."""
    for name, (old, _) in package_differences(before, after).items():
        if name in _FIRST and old is not None:
            return f"{name} {old}"
    return before.command


def environment_of(python: Interpreter, same: Mapping[str, str], ours: Interpreter) -> Json:
    """Return the variables of a process of another Python: those of its virtual environment."""
    kept = {
        name: text
        for name, text in same.items()
        if name == "PYTHONPATH" or name not in (*_OF_ONE_PYTHON, "VIRTUAL_ENV")
    }
    if python.is_venv:
        kept["VIRTUAL_ENV"] = python.prefix
    folders = [str(Path(one.command).parent) for one in (python, ours)]
    entries = kept.get("PATH", os.defpath).split(os.pathsep)
    elsewhere = [entry for entry in entries if not (ours.is_venv and entry == folders[1])]
    return {**kept, "PATH": os.pathsep.join(dict.fromkeys([folders[0], *elsewhere]))}


def _unfit(python: Interpreter, ours: Interpreter) -> str:
    """Return why a Python cannot run the same tests, empty if it can."""
    install = f"{shlex.quote(python.command)} -m pip install"
    plugin = f"{install} pytest-tfperf=={pytest_tfperf.__version__}"
    if python.platform != ours.platform:
        return f"it is a Python for {python.platform}, and this one is for {ours.platform}"
    if python.version[:2] < _OLDEST:
        shown, oldest = (".".join(map(str, one)) for one in (python.version, _OLDEST))
        return f"it is Python {shown}, and pytest-tfperf needs {oldest} or newer"
    if python.protocol is None:
        return f"it does not have this plugin; install it with {plugin}"
    if python.protocol != PROTOCOL:
        has = python.packages.get("pytest-tfperf", "another version")
        return f"its pytest-tfperf ({has}) does not understand this one; install it with {plugin}"
    frameworks = [name for name in ours.modules if name != "pytest"]
    missing = [] if "pytest" in python.modules else ["pytest"]
    if not set(frameworks) & set(python.modules):  # which of several the tests need is not known
        missing += frameworks
    if missing:
        named = " and ".join(missing)
        return f"it does not have {named}; install it with {install} {' '.join(missing)}"
    if why := too_old(_by_name(python.packages).get("tensorflow", "")):
        return f"{why}; install a newer one with {install} --upgrade tensorflow"
    return ""


def _by_name(packages: Mapping[str, str]) -> dict[str, str]:
    """Return packages with each build of TensorFlow as `tensorflow`."""
    builds = [packages[name] for name in DISTRIBUTIONS if name in packages]
    others = {name: version for name, version in packages.items() if name not in DISTRIBUTIONS}
    return {**others, **({"tensorflow": builds[0]} if builds else {})}


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    """Return what a command prints; end it with all that it started if it takes too long."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise PairedError(
            f"{FLAG} {command[0]}: it cannot be run here ({error.strerror}); "
            "name a Python of this system and processor"
        ) from error
    try:
        return process.communicate(timeout=_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        raise PairedError(
            f"{FLAG} {command[0]}: it did not answer within {_LIMIT_S:g} s, so it is no Python, "
            "or its disk is out of reach"
        ) from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # waits, and closes the pipe
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Both versions of a paired run, found and ready to start."""

    tree: Tree
    name: str
    pythons: tuple[Interpreter, Interpreter] | None = None
    """The Python of this process and that of the other version, where they are two."""

    @property
    def here(self) -> str:
        """Name of the version that this process belongs to in messages."""
        return "this environment" if self.tree.is_alone else "the working tree"

    @property
    def otherwise(self) -> str:
        """Advice where the other version cannot run a test."""
        another = "an environment in" if self.tree.is_alone else "a ref on"
        return f"{another} which it runs, or stored values (--tfperf-baseline)"

    @property
    def packages(self) -> dict[str, tuple[str | None, str | None]]:
        """Packages that differ: their versions on the other side and here."""
        return package_differences(*self.pythons[::-1]) if self.pythons else {}

    def to_json(self) -> Json | None:
        """Return what reports show beside the environment of a test; None with one Python."""
        if self.pythons is None:
            return None
        return {
            "name": self.name,
            "python": self.pythons[1].command,
            "packages": {
                name: {"before": before, "after": after}
                for name, (before, after) in self.packages.items()
            },
        }


def find_versions(
    config: pytest.Config, ref: str | None, python: Path | None, folder: Path
) -> Versions:
    """Write the ref's files and ask the other Python, as wanted. Raises: PairedError."""
    if python is None:
        assert ref is not None
        tree = write_tree(ref, Path(config.invocation_params.dir), folder)
        return Versions(tree=tree, name=ref)
    environment = uncovered_environment()
    ours = ask(sys.executable, (), environment)
    alone = tree_alone(config.rootpath, "")
    theirs = other_python(python, _shared(ours, alone), environment, ours)
    name = distinct_name(theirs, ours)
    if ref is None:
        return Versions(tree=replace(alone, ref=name), name=name, pythons=(ours, theirs))
    tree = write_tree(ref, Path(config.invocation_params.dir), folder)
    return Versions(tree=tree, name=f"{ref} with {name}", pythons=(ours, theirs))


def pytest_run(
    config: pytest.Config,
    versions: Versions,
    is_tree: bool,
    files: Sequence[str],
    clustered: bool,
    is_first: bool,
) -> PytestRun:
    """Return how a process of one of both versions is started."""
    whole = versions.tree
    tree = replace(whole, path=whole.root) if is_tree else whole
    folder = mapped(Path(config.invocation_params.dir), tree)
    folder.mkdir(parents=True, exist_ok=True)
    label = f"{versions.here}'s process" if is_tree else f"the process on {versions.name}"
    run = same_run(config, label, tree.path, files)
    same, path = run.environment, list(run.path)
    pythons = versions.pythons
    if pythons and not is_tree:
        ours, theirs = pythons
        path = [*_shared(ours, whole), *theirs.path]
        same = environment_of(theirs, same, ours)
        has_cov = "pytest-cov" in theirs.packages
        run = replace(run, python=theirs.command, is_covered=run.is_covered and has_cov)
    two = _two_pythons(pythons if is_tree else pythons[::-1], whole) if pythons else None
    version = Version(tree=whole, is_tree=is_tree, is_first=is_first, pythons=two)
    return replace(
        run,
        task=msgspec.structs.replace(run.task, version=version),
        path=[_mapped_entry(entry, tree) for entry in path],
        arguments=[mapped_argument(argument, tree) for argument in invocation_arguments(config)],
        folder=folder,
        environment=_environment(same, tree, clustered),
        shows_output=is_tree and is_first and shows_output(config),
    )


def _two_pythons(pythons: tuple[Interpreter, ...], tree: Tree) -> TwoPythons:
    """Return what a process of the first Python checks; entries of the project are of both."""
    own, others = (
        tuple(entry for entry in python.path if not _is_of_project(entry, python, tree))
        for python in pythons
    )
    return TwoPythons(name=pythons[0].command, own=own, others=others)


def _shared(ours: Interpreter, tree: Tree) -> list[str]:
    """Return the entries of sys.path that are the user's or the project's, and not of a Python."""
    return [entry for entry in sys.path if not entry or _is_shared(entry, ours, tree)]


def _is_shared(entry: str, ours: Interpreter, tree: Tree) -> bool:
    """Return whether an entry is the project's, or in no folder of this Python."""
    if _is_of_project(entry, ours, tree):
        return True
    own = (one for one in ours.path if not _is_of_project(one, ours, tree))
    return not any(Path(entry).is_relative_to(one) for one in own)


def _is_of_project(entry: str, python: Interpreter, tree: Tree) -> bool:
    """Return whether an entry is a folder of the project, and no environment that lies in it."""
    prefix = Path(python.prefix)
    lies_within = prefix.is_relative_to(tree.root) and prefix != tree.root
    if lies_within and Path(entry).is_relative_to(prefix):
        return False
    return is_of_project(entry, tree)


def _environment(same: Mapping[str, str], tree: Tree, clustered: bool) -> Mapping[str, str]:
    """Return the environment of a version, with Python's paths mapped to its folder."""
    environment = {**same, "PWD": str(mapped(Path.cwd(), tree))}
    entries = [entry for entry in same.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(_mapped_entry(entry, tree) for entry in entries)
    return autoclustering_environment(environment) if clustered else environment


def _mapped_entry(entry: str, tree: Tree) -> str:
    """Map an entry of sys.path; the empty one is the working directory, which is mapped anyway."""
    return str(mapped(entry, tree)) if entry else ""
