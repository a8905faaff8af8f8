"""The suite of every form, which the version matrix runs, with the TensorFlow that is installed."""

import subprocess
import sys

import pytest
from helpers.paths import ROOT


@pytest.mark.nightly
def test_every_form_works(processes):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "suites" / "smoke")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "24 passed, 1 xfailed" in done.stdout
