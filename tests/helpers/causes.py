"""
The planted causes of tests/suites/causes: what each file expects of the message, and how the message is judged.

A file has the literal EXPECTED, tests named `test_broken…` that must fail with a message of that content, and tests named
`test_fixed…` that must pass. EXPECTED is read without running the file.

    metric      of the check that the terminal shows first
    headline    regular expression for its first line; optional
    where       for its lines `where`: the cause and its place
    try         for its lines `try`: the remedy of this cause
    never       for the whole message of the test: a wrong cause or remedy; optional
    tier        `full`, if the case runs in the full tier and not only each night; optional
    unknown     true if the value cannot be known, since the cause ends the profile early; optional
    unmet       why the message is not as expected, so far; optional
"""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass

from helpers.paths import SUITES
from helpers.sources import tree

FOLDER = SUITES / "causes"
OPTIONS = ("-q", "-p", "pytest_tfperf.plugin.hooks")
FAILING = {"FAIL", "REGRESSION", "UNKNOWN", "MISSING"}
KEYS = {"metric", "headline", "where", "try", "never", "tier", "unmet", "unknown"}
LIMIT_S = 300


@dataclass(frozen=True)
class Row:
    """How one test of a case is judged."""

    case: str
    form: str
    metric: str
    wrong: tuple[str, ...]
    """What is not as expected, the most important first; nothing if all is right."""
    accounted: float | None
    """Share of the time that `where` accounts for, if the check says it."""
    message: str


def cases():
    return sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


def expected(path):
    """The literal EXPECTED of a case."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [
            "EXPECTED"
        ]:
            found = ast.literal_eval(node.value)
            assert {"metric", "where", "try"} <= set(found) <= KEYS, f"{path.name}: keys {[*found]}"
            return found
    raise AssertionError(f"{path.name} has no EXPECTED")


def forms(path):
    """Names of the tests of a case."""
    names = [node.name for node in tree(path).body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith(("test_broken", "test_fixed"))]


def judged(path, folder):
    """Run the tests of a case in a pytest of their own, which writes into a folder, and judge each."""
    report = folder / f"{path.stem}.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, f"--tfperf-report={report}", path.name],
        cwd=path.parent,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert report.exists(), done.stdout[-5000:] + done.stderr[-2000:]
    tests = {test["key"]: test for test in json.loads(report.read_text())["tests"]}
    wanted = expected(path)
    return [_row(path.stem, form, wanted, tests.get(form), done.stdout) for form in forms(path)]


def _row(case, form, wanted, test, printed):
    checks = test["checks"] if test else []
    failed = [one for one in checks if one["verdict"] in FAILING and not one.get("follows")]
    message = "\n".join(check["message"] for check in failed)
    first = failed[0] if failed else None
    metric = first["metric"] if first else wanted["metric"]
    if test is None or (test["outcome"] != "passed" and not failed):
        metric, wrong, message = wanted["metric"], ["has an error"], printed[-5000:]
    elif form.startswith("test_fixed"):
        wrong = ["is red"] if test["outcome"] != "passed" else []
    else:
        wrong = list(_wrong(wanted, first, message)) if first else ["is green"]
    accounted = first and first["detail"].get("accounted")
    return Row(case, form, metric, tuple(wrong), accounted, message)


def _wrong(wanted, check, message):
    """What is wrong with the message of a broken form."""
    if check["metric"] != wanted["metric"]:
        yield f"metric is not {wanted['metric']}"
    elif (check["verdict"] == "UNKNOWN") != bool(wanted.get("unknown")):
        yield f"is {check['verdict']}"
    pairs = [*check["details"], *check["advice"]]
    lines = {
        key: "\n".join(text for label, text in pairs if label == key) for key in ("where", "try")
    }
    for key, text in {"headline": check["sentence"], **lines}.items():
        if key in wanted and not re.search(wanted[key], text, re.DOTALL):
            yield f"{key} does not match" if text else f"has no {key}"
    if "never" in wanted and (found := re.search(wanted["never"], message, re.DOTALL)):
        yield f"says {found[0]!r}"
