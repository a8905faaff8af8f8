"""All that pytest prints of one suite, by its options and widths: read the files in tests/data/golden as a user would."""

import os
import re

import pytest
from helpers.golden import FOLDER, assert_golden
from helpers.paths import TESTS

SUITE = """
import os

import pytest

from helpers.builders import value

NOW = "NOW" in os.environ
STARVED = value("input_bound", 0.61, where="stage Map 'load' (44.9 ms of work a call)", **{"try": "prefetch"})

@pytest.mark.tfperf(max_input_bound="5%", max_step_time="1 s")
def test_limits_are_kept(tf_profile):
    tf_profile(0.0222, input_bound=0.008)

@pytest.mark.tfperf(max_input_bound="5%", max_retraces=0)
def test_limits_are_broken(tf_profile):
    tf_profile(0.0222, input_bound=STARVED, retraces=3)

@pytest.mark.tfperf(max_epoch_gap="1 s")
def test_limit_is_unknown(tf_profile):
    tf_profile(0.0222, "train", retraces=0)

def test_good(tf_profile):
    tf_profile(11.9e-3 if NOW else 679e-6, graph_ops=46 if NOW else 21, flops=631e6 if NOW else 164_515)

def test_steady(tf_profile):
    tf_profile(0.01, eager_ops=0)

def test_ordinary_failure(tf_profile):
    tf_profile(0.01)
    assert 1 == 2, "numbers differ"

def test_without_profile():
    pass
"""
OPTIONS = {
    "v": ["-v"],
    "q": ["-q"],
    "qq": ["-qq"],
    "rA": ["-rA"],
    "short": ["--tb=short"],
    "line": ["--tb=line"],
    "no": ["--tb=no"],
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The folder of a suite whose code changes after its baseline was recorded."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


@pytest.fixture
def output(suite, pytester, monkeypatch, processes):
    """Runs the suite after its code has changed, and returns what pytest prints."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.chdir(suite)

    def run(columns, *options):
        monkeypatch.setenv("COLUMNS", str(columns))
        command = ["-p", "helpers.fake_profiler", "-p", "no:cacheprovider", "--rootdir=.", *options]
        done = pytester.runpytest_subprocess(*command, str(suite))
        return _without_what_differs(done.stdout.str(), str(suite))

    if not (suite / "__tfperf__").exists():
        run(80, "--tfperf-update")
    monkeypatch.setenv("NOW", "1")
    return run


def _without_what_differs(text, folder):
    """The output without the versions, paths and times of one run."""
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith(
            ("platform ", "rootdir: ", "plugins: ", "configfile: ", "cachedir: ")
        )
    ]
    text = "\n".join(lines).replace(folder, "FOLDER") + "\n"
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
    text = re.sub(r"^=* (.* in) [\d.]+s =*$", r"= \1 TIME =", text, flags=re.MULTILINE)
    return re.sub(r"^(\d+ failed.* in) [\d.]+s$", r"\1 TIME", text, flags=re.MULTILINE)


def test_output(output):
    assert_golden("output_plain.txt", output(80, "--tfperf-baseline"))


@pytest.mark.full
@pytest.mark.parametrize("name", OPTIONS)
def test_output_by_options(output, name):
    text = output(80, "--tfperf-baseline", *OPTIONS[name])
    assert_golden(f"output_{name}.txt", text)


@pytest.mark.full
@pytest.mark.parametrize("columns", [60, 140])
def test_output_by_width(output, columns):
    assert_golden(f"output_{columns}_columns.txt", output(columns, "--tfperf-baseline"))


@pytest.mark.full
def test_output_in_colour(output):
    """Rows of the table and checks have colours, and nothing else differs from the plain output."""
    coloured = output(80, "--tfperf-baseline", "--color=yes")
    assert re.search(r"\x1b\[31m +retraces", coloured)
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    table = plain.partition("\ntfperf: 3 checks")[0].partition("test         metric")[2]
    assert table in (FOLDER / "output_plain.txt").read_text("utf-8")
