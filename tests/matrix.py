"""
Run the tests with each supported version of Python and TensorFlow, and print a table in Markdown.

    python tests/matrix.py               # all rows, one after the other
    python tests/matrix.py oldest next   # some of them

Each row has an environment of its own, made by uv or else by venv and pip, and removed after its tests. A row whose interpreter
is missing says so. The exit status is 1 if tests of any row fail. This file itself needs Python 3.11.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
CORE = [f"tests/tensorflow/{part}" for part in ("capture", "compiler", "plugin", "trace")]
SMOKE = "tests/suites/smoke"
SUITES = {
    "fast": [["-n", "2", "--dist", "worksteal", "tests"]],
    "core": [CORE],
    "smoke": [
        [SMOKE],
        [SMOKE, "--tfperf-update", "--tfperf-baseline-dir", "{baselines}"],
        # times are for quiet machines
        [
            SMOKE,
            "--tfperf-baseline",
            "--tfperf-baseline-dir",
            "{baselines}",
            "--tfperf-only=structural",
        ],
    ],
}
WITHOUT = ("tensorflow", "pytest-tfperf")  # of what the tests need: a row has its own
LONGEST_S = 3600
WORDS = r"\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed)"


@dataclass(frozen=True)
class Row:
    """One environment, and the tests that run in it."""

    python: str
    tensorflow: str
    suite: str
    lowest: bool = False  # of every dependency that has a floor, and of Keras


ROWS = {
    "fast": Row("3.11", "2.21.*", "fast"),
    "newest": Row("3.13", "2.21.*", "core"),
    "lowest": Row("3.10", "2.18.0", "core", lowest=True),
    "2.19": Row("3.12", "2.19.*", "core"),
    "2.20": Row("3.13", "2.20.*", "core"),
    "oldest": Row("3.10", "2.18.*", "smoke"),
    "next": Row("3.13", "2.22.0rc0", "smoke"),
}
KERAS = "keras==3.5.0"  # the oldest that TensorFlow 2.18 accepts


@dataclass(frozen=True)
class Outcome:
    """What a row gave."""

    versions: str
    found: str
    seconds: float
    failed: bool = False
    details: str = ""


def interpreter(version):
    """The path of a Python of this version: from PATH, pyenv or uv; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    if shutil.which("uv"):
        done = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True)
        places.append(done.stdout.strip())
    return next((str(place) for place in places if place and answers(place, version)), None)


def answers(place, version):
    """Whether this is a Python of that version: pyenv's shims name some that are not installed."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([place, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() == version


def requirements(row):
    """What a row installs besides the plugin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tools = project["optional-dependencies"]["test"]
    # TensorFlow 2.18.0 and JAX need different versions of ml_dtypes; only the fast tier has tests of JAX
    without = WITHOUT if row.suite == "fast" else (*WITHOUT, "jax")
    needed = [one for one in tools if not one.startswith(without)]
    build = (
        "tensorflow"
        if sys.platform == "darwin" or platform.machine() not in ("x86_64", "AMD64")
        else None
    )
    needed.append(f"{build or 'tensorflow-cpu'}=={row.tensorflow}")
    if row.lowest:
        needed += [one.replace(">=", "==") for one in project["dependencies"]] + [KERAS]
    return needed


def make(row, python, folder):
    """Make the environment of a row, and return its Python."""
    made = folder / "bin" / "python"
    if shutil.which("uv"):
        checked(["uv", "venv", "-q", "--python", python, str(folder)])
        install = ["uv", "pip", "install", "-q", "--python", str(made), "--prerelease", "allow"]
    else:
        checked([python, "-m", "venv", str(folder)])
        install = [str(made), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    checked([*install, "-e", f"{ROOT}[history]", *requirements(row)])
    return made


def checked(command):
    """Run a command; an error shows the end of its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[:4])} … failed:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def versions(python):
    """The installed versions, as cells of the table: Python, TensorFlow, Keras, NumPy, pytest."""
    code = (
        "import importlib.metadata as m, sys; names = {d.metadata['Name'].lower().replace('_', '-'): d.version"
        " for d in m.distributions()}; print('%d.%d.%d' % sys.version_info[:3], *("
        "names.get(n) or names.get(n + '-cpu') or names.get(n + '-nightly', '–')"
        " for n in ('tensorflow', 'keras', 'numpy', 'pytest')), sep=' | ')"
    )
    return checked([str(python), "-c", code]).strip()


def run(row, folder):
    """Make an environment, run the tests of a row in it, and remove it."""
    began = time.monotonic()
    python = interpreter(row.python)
    if python is None:
        missing = f"{row.python} | {row.tensorflow} | – | – | –"
        return Outcome(missing, f"no Python {row.python} on this machine", 0.0)
    try:
        made = make(row, python, folder / "env")
        shown, found, details, failed = versions(made), [], [], False
        for arguments in SUITES[row.suite]:
            given = [one.format(baselines=folder / "baselines") for one in arguments]
            code, output = tested(made, given)
            failed |= code != 0
            found.append(", ".join(re.findall(WORDS, output.splitlines()[-1])) or f"exit {code}")
            details += [
                line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))
            ]
            if code and not details:
                details.append(output[-2000:])
        return Outcome(
            shown, "; ".join(found), time.monotonic() - began, failed, "\n".join(details)
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        asked = f"{row.python} | {row.tensorflow} | – | – | –"
        return Outcome(asked, "not installed", time.monotonic() - began, True, str(error))
    finally:
        shutil.rmtree(folder / "env", ignore_errors=True)


def tested(python, arguments):
    """Run pytest, and return its exit status and output."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**variables, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
    )
    return done.returncode, done.stdout.rstrip() or "no output"


def main():
    """Run the rows that are named, and print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", help=f"rows to run: {', '.join(ROWS)}; all by default")
    parser.add_argument(
        "--folder", type=Path, help="folder for environments, a temporary one by default"
    )
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no row is named {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    print("| row | Python | TensorFlow | Keras | NumPy | pytest | tests | result | minutes |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    outcomes = {}
    for name in given.rows or ROWS:
        with tempfile.TemporaryDirectory(prefix="tfperf-matrix-", dir=given.folder) as folder:
            found = outcomes[name] = run(ROWS[name], Path(folder))
        print(
            f"| {name} | {found.versions} | {ROWS[name].suite} | {found.found} "
            f"| {found.seconds / 60:.1f} |",
            flush=True,
        )
    for name, found in outcomes.items():
        if found.details:
            print(f"\n{name}:\n{found.details}")
    sys.exit(any(found.failed for found in outcomes.values()))


if __name__ == "__main__":
    main()
