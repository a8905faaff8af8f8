"""Modules that a process loads when it imports the plugin or the package."""

import json
import subprocess
import sys

import pytest

import pytest_tfperf

HEAVY = {"tensorflow", "keras", "numpy", "jinja2", "tabulate", "filelock", "rich"}
LIGHT = {
    f"pytest_tfperf.{name}"
    for name in (
        *("errors", "markers", "metrics", "plugin"),
        *(
            "plugin.hooks",
            "plugin.option_kinds",
            "plugin.options",
            "plugin.registry",
            "plugin.workers",
        ),
    )
}


def test_a_process_that_imports_the_hooks_loads_little():
    command = [sys.executable, "-X", "importtime", "-c", "import pytest_tfperf.plugin.hooks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pytest_tfperf.plugin.hooks" in names
    assert not HEAVY & {name.split(".")[0] for name in names}
    assert {name for name in names if name.startswith("pytest_tfperf.")} <= LIGHT


UNPROFILED = """
import sys
import pytest

def test_skips(tf_profile):
    pytest.skip("planted")

def test_passes(tf_profile):
    pass

def test_nothing_is_loaded():
    assert not {"tensorflow", "jax", "keras"} & set(sys.modules)
"""


def test_tests_that_profile_nothing_load_no_framework(pytester):
    """A later test of the process may import another one, such as JAX."""
    pytester.makepyfile(UNPROFILED)
    options = "-n", "2", "--dist", "loadfile", "--tfperf-only", "structural"
    result = pytester.runpytest_subprocess(*options, "--tfperf-report=run.json")
    result.assert_outcomes(passed=2, skipped=1)
    run = json.loads((pytester.path / "run.json").read_text())
    assert [test["environment"] for test in run["tests"]] == [{}, {}]


def test_the_package_exports_its_types_and_loads_them_when_asked_for():
    code = (
        "import sys, pytest_tfperf\n"
        "assert not [name for name in sys.modules if name.startswith('pytest_tfperf.')]\n"
        "assert set(pytest_tfperf.__all__) <= set(dir(pytest_tfperf))\n"
        "pytest_tfperf.TfperfError, pytest_tfperf.UnknownMetric\n"
        "loaded = {name for name in sys.modules if name.startswith('pytest_tfperf.')}\n"
        "assert loaded == {'pytest_tfperf.errors'}, loaded\n"
        "for name in pytest_tfperf.__all__:\n"
        "    assert getattr(pytest_tfperf, name).__name__ == name\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'pytest_tfperf' has no attribute 'TfProfil'"):
        _ = pytest_tfperf.TfProfil
