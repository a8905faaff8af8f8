"""Ask another Python what it is and has, and refuse one that cannot run the same tests."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import pytest_tfperf
from pytest_tfperf.errors import PairedError
from pytest_tfperf.frameworks.tensorflow import DISTRIBUTIONS, too_old
from pytest_tfperf.turn import PROTOCOL
from pytest_tfperf.turns import interpreter_script
from pytest_tfperf.turns.pytest_child import interpreter_flags
from pytest_tfperf.values import Json

FLAG = "--tfperf-against-python"
_LIMIT_S = 60.0
_OLDEST = (3, 10)
# they lead another Python to the libraries or the environment of this one
_OF_ONE_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")
_FIRST = ("tensorflow", "keras", "numpy", "python")
_SHOWN = 120  # characters of an answer that is not understood


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python, and what it would load."""

    command: str
    """The path that starts it; links are not followed, since they tell environments apart."""
    executable: str
    """Its `sys.executable`."""
    prefix: str
    """The folder of its environment."""
    is_venv: bool
    """True if that is a virtual environment."""
    version: tuple[int, ...]
    """Python's version, three numbers."""
    platform: str
    """System and processor, as `linux x86_64`."""
    path: tuple[str, ...]
    """Its own sys.path, without entries from PYTHONPATH."""
    packages: Mapping[str, str]
    """Versions of what is installed, by normalised name, with `python`."""
    modules: tuple[str, ...]
    """Those of `pytest` and `tensorflow` that it finds."""
    protocol: int | None
    """Its plugin's version of the messages between processes; None without the plugin."""


def ask(command: str, shared: Sequence[str], environment: Mapping[str, str]) -> Interpreter:
    """
    Return what a Python says of itself.

    Args:
        command: Its path.
        shared: Entries of sys.path that go before its own.
        environment: Environment variables.

    Raises:
        PairedError: If it cannot be run, does not answer in time, or is no Python.
    """
    arguments = [str(interpreter_script.__file__), json.dumps(list(shared))]
    variables = {name: text for name, text in environment.items() if name not in _OF_ONE_PYTHON}
    output = _output([command, *interpreter_flags(other=True), *arguments], variables)
    try:
        answer = json.loads(output.strip().rpartition("\n")[2])
        known = {one.name: answer[one.name] for one in fields(Interpreter) if one.name in answer}
        return Interpreter(**_frozen(known), command=command)
    except (KeyError, TypeError, ValueError):
        said = f"it answered {output.strip()[-_SHOWN:]!r}" if output.strip() else "it said nothing"
        raise PairedError(f"{FLAG} {command}: this is no Python 3 ({said})") from None


def other_python(
    typed: Path, shared: Sequence[str], environment: Mapping[str, str], platform: str
) -> Interpreter:
    """
    Return the Python of a path, if it can run the same tests.

    Args:
        typed: The path of a Python, or of the folder of a virtual environment.
        shared: Entries of sys.path that go before its own.
        environment: Environment variables.
        platform: System and processor of this Python.

    Raises:
        PairedError: If it cannot; the message names the command that installs what is missing.
    """
    python = typed / "bin" / "python" if typed.is_dir() else typed
    if not python.is_file():
        wanted = f"{typed} has no bin/python" if typed.is_dir() else "there is no such file"
        raise PairedError(
            f"{FLAG} {typed}: {wanted}; name a Python, or the folder of a virtual environment"
        )
    found = ask(os.path.abspath(python), shared, environment)  # noqa: PTH100 - keeps links
    if why := _unfit(found, platform):
        raise PairedError(f"{FLAG} {typed}: {why}")
    return found


def package_differences(
    before: Interpreter, after: Interpreter
) -> dict[str, tuple[str | None, str | None]]:
    """
    Return the versions on either side of each package that differs; None where it is missing.

    TensorFlow, Keras, NumPy and Python come first, then what both have, then what one lacks.
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
    """
    Return the variables of a process of another Python: those of its virtual environment.

    Args:
        python: The other Python.
        same: Variables of this process.
        ours: The Python of this process.
    """
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


def _unfit(python: Interpreter, platform: str) -> str:
    """Return why a Python cannot run the same tests, empty if it can."""
    install = f"{shlex.quote(python.command)} -m pip install"
    plugin = f"{install} pytest-tfperf=={pytest_tfperf.__version__}"
    if python.platform != platform:
        return f"it is a Python for {python.platform}, and this one is for {platform}"
    if python.version[:2] < _OLDEST:
        shown, oldest = (".".join(map(str, one)) for one in (python.version, _OLDEST))
        return f"it is Python {shown}, and pytest-tfperf needs {oldest} or newer"
    if python.protocol is None:
        return f"it does not have this plugin; install it with {plugin}"
    if python.protocol != PROTOCOL:
        has = python.packages.get("pytest-tfperf", "another version")
        return f"its pytest-tfperf ({has}) does not understand this one; install it with {plugin}"
    missing = [name for name in ("pytest", "tensorflow") if name not in python.modules]
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


def _frozen(answer: Json) -> Json:
    """Return an answer with tuples for lists, and Python among the packages."""
    python = ".".join(str(number) for number in answer["version"])
    return {
        **answer,
        **{name: tuple(answer[name]) for name in ("version", "path", "modules")},
        "packages": {**answer["packages"], "python": python},
    }
