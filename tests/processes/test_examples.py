"""The examples are suites that users could have written: they must run, and show what they are there to show."""

import os
import shutil
import subprocess
import sys

import pytest
from helpers.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
EXAMPLES = ROOT / "examples"
PIPELINE = EXAMPLES / "input_pipeline"


def run(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_all_examples_run():
    done = run(EXAMPLES, "-v", "-c", os.devnull, "--rootdir", str(EXAMPLES), "--tfperf-disable")
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
    folders = [path.name for path in EXAMPLES.iterdir() if any(path.glob("test_*.py"))]
    assert len(folders) >= 6
    assert all(f"{folder}/test_" in done.stdout for folder in folders), done.stdout


@pytest.mark.nightly  # the verdicts of some depend on times
@pytest.mark.parametrize(
    "example",
    ["grappler", "input_pipeline", "mixed_precision", "custom_metric", "tpu_padding", "xla_mnist"],
)
def test_an_example_passes(example):
    done = run(EXAMPLES / example)
    assert done.returncode == 0, done.stdout


@pytest.mark.nightly
def test_a_sequential_pipeline_turns_exactly_its_test_red_with_the_stage_named(tmp_path):
    shutil.copytree(PIPELINE, tmp_path / "copy")
    source = tmp_path / "copy" / "pipeline.py"
    text = source.read_text().replace("def parallel(", "def parallel_no_more(")
    source.write_text(text + "\n\nparallel = sequential\n")
    done = run(tmp_path / "copy", "-k", "pipeline_starves or pipeline_keeps")  # not the records
    assert "1 failed, 1 passed" in done.stdout
    assert "PERF" in done.stdout
    assert "input_bound is" in done.stdout
    assert "where: stage MapAndBatch 'load'" in done.stdout
