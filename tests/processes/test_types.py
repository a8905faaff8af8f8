"""What type checkers say of tests that use the exported types."""

import subprocess
import sys

import pytest
from helpers.paths import ROOT

GOOD = """
import pytest_tfperf
from pytest_tfperf import Comparison, Profile, UnknownMetric

def test_step(tf_profile: pytest_tfperf.TfProfile) -> None:
    profile = tf_profile(abs, [1])
    n: int = profile.retraces
    seconds: float = profile.step_time
    value: pytest_tfperf.Value = profile.value("step_time")
    table: pytest_tfperf.Table = profile.tables["host_ops"]
    for row in table.records():
        row["op"]
    comparison: Comparison = tf_profile.compare({"a": abs, "b": abs})
    assert n == 0 and seconds < 1 and value.number and comparison.speedup("b")

def register(registry: pytest_tfperf.Registry) -> None:
    try:
        print(registry)
    except (UnknownMetric, pytest_tfperf.TfperfError):
        print(pytest_tfperf.Verdict.PASS)
"""
WRONG = {
    "profile.step_tim": '"Profile" has no attribute "step_tim"',
    "profile.retraces.real_part": '"int" has no attribute "real_part"',
    "tf_profile.evaluat": '"TfProfile" has no attribute "evaluat"',
    "pytest_tfperf.Profil": 'Module has no attribute "Profil"',
}


def checked(tmp_path, code):
    """Run mypy on a test file, and return its exit status and output."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    path = tmp_path / "test_typed.py"
    path.write_text(code)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict"),
            *("--ignore-missing-imports", f"--cache-dir={ROOT / '.mypy_cache' / 'typed'}", path),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done.returncode, done.stdout


def test_exported_types_are_what_the_fixture_gives(tmp_path):
    status, output = checked(tmp_path, GOOD)
    assert (status, output) == (0, "Success: no issues found in 1 source file\n")


def test_a_misspelt_name_is_a_type_error(tmp_path):
    lines = "".join(f"    {expression}\n" for expression in WRONG)
    head = "def test_step(tf_profile: pytest_tfperf.TfProfile, profile: pytest_tfperf.Profile) -> None:"
    status, output = checked(tmp_path, f"import pytest_tfperf\n\n{head}\n{lines}")
    assert status == 1
    assert len(output.splitlines()) == len(WRONG) + 1
    for line, message in zip(output.splitlines(), WRONG.values(), strict=False):
        assert message in line
