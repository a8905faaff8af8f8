"""Modules that a process loads when it imports the plugin or the package."""

import json
import subprocess
import sys

import pytest

import pytest_tfperf

pytestmark = pytest.mark.usefixtures("processes")
HEAVY = {"tensorflow", "keras", "numpy", "jinja2", "tabulate", "filelock"}
LIGHT = {
    f"pytest_tfperf.{name}"
    for name in (
        *("errors", "markers", "metrics", "plugin"),
        *(
            "plugin.hooks",
            "plugin.options",
            "plugin.registry",
            "plugin.workers",
        ),
    )
}


# prints the modules that are loaded after each import, as lists of JSON
IMPORTS = """
import json, sys

def show():
    print(json.dumps(sorted(sys.modules)))

import pytest_tfperf
show()
pytest_tfperf.TfperfError
show()
import pytest_tfperf.plugin.hooks
show()
from pytest_tfperf import *
show()
from pytest_tfperf import TfProfile, analyze_traces
for name in dir(pytest_tfperf):
    getattr(pytest_tfperf, name)
show()
"""


def test_a_process_that_imports_the_plugin_or_the_package_loads_little():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    package, error, hooks, starred, names = (
        set(json.loads(line)) for line in done.stdout.splitlines()
    )
    assert not {name for name in package if name.startswith("pytest_tfperf.")}
    assert {name for name in error if name.startswith("pytest_tfperf.")} == {"pytest_tfperf.errors"}
    assert "pytest_tfperf.plugin.hooks" in hooks
    assert not HEAVY & hooks
    assert {name for name in hooks if name.startswith("pytest_tfperf.")} <= LIGHT
    assert not {"tensorflow", "keras", "jax"} & names
    assert not (HEAVY | {"fsspec", "duckdb"}) & starred
    assert {"fsspec", "duckdb", "numpy"} <= names
    with pytest.raises(AttributeError, match="module 'pytest_tfperf' has no attribute 'TfProfil'"):
        _ = pytest_tfperf.TfProfil


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


REWRITTEN = """
import sys

def test_of(request):
    import pytest_tfperf.plugin.profiles
    loaders = {type(module.__loader__).__name__ for name, module in sys.modules.items() if name.startswith("pytest_tfperf.")}
    assert loaders == {"SourceFileLoader"}
"""


def test_pytest_rewrites_no_module_of_the_plugin(pytester):
    """It compiles those that it rewrites in each run that may write no bytecode."""
    pytester.makepyfile(REWRITTEN)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
