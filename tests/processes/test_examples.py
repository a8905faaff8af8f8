"""The examples are suites that users could have written: they must run, and show what they are there to show."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from helpers.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
EXAMPLES = ROOT / "examples"
PIPELINE = EXAMPLES / "input_pipeline"


def run(path, *arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(path), *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


def test_all_examples_run():
    done = run(EXAMPLES, "-v", "-c", os.devnull, "--rootdir", str(EXAMPLES), "--tfperf-disable")
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
    folders = [path.name for path in EXAMPLES.iterdir() if any(path.glob("test_*.py"))]
    assert len(folders) >= 6
    assert all(f"{folder}/test_" in done.stdout for folder in folders), done.stdout


@pytest.mark.nightly  # needs some ten seconds for each remedy, in a process of its own
def test_the_line_that_trying_names_makes_a_failing_example_pass(tmp_path):
    project = shutil.copytree(EXAMPLES / "eager_step", tmp_path / "project")
    lost = "@tf.function\n"
    for path in project.glob("*.py"):
        path.write_text(path.read_text().replace(lost, ""))
    alone = {"TMPDIR": str(tmp_path)}  # with locks of its own: the tries would wait for other tests
    before = run(".", "--tfperf-try", cwd=project, **alone)
    assert "1 failed" in before.stdout, before.stdout
    named = re.search(r"^ +write: (\S+):(\d+)  (@.+)$", before.stdout, re.MULTILINE)
    assert named, before.stdout
    source, place = project / named[1], int(named[2]) - 1
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join([*lines[:place], f"{named[3]}\n", *lines[place:]]))
    after = run(".", cwd=project)
    assert "1 passed" in after.stdout, after.stdout


@pytest.mark.nightly  # the verdicts of some depend on times
@pytest.mark.parametrize(
    "example",
    [
        "grappler",
        "eager_step",
        "input_pipeline",
        "mixed_precision",
        "custom_metric",
        "tpu_padding",
        "xla_mnist",
    ],
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
