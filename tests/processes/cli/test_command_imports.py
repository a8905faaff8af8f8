"""Commands in processes of their own: their exit status, and what they load."""

import json
import shlex
import subprocess
import sys

import pytest
from helpers.builders import profile, record_of, run_of
from helpers.hlo import module, op, parameters, trace_of
from helpers.sample_run import FAILED, PASSED
from helpers.xspace import at, line, plane, space

from pytest_tfperf.cli.main import COMMANDS
from pytest_tfperf.report.run_file import write_run

pytestmark = pytest.mark.usefixtures("processes")


def python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.full
def test_a_command_imports_no_module_of_another():
    done = python(
        "import json, sys; from pytest_tfperf.cli.main import command_parser; "
        "command_parser('trace_commands'); print(json.dumps(sorted(sys.modules)))"
    )
    loaded = {name.removeprefix("pytest_tfperf.cli.") for name in json.loads(done.stdout)}
    assert loaded & set(COMMANDS.values()) == {"main", "trace_commands"}
    assert not loaded & {"_pytest", "filelock", "numpy", "tabulate", "tensorflow"}


ALL = """
import sys
from pytest_tfperf.cli.main import main

def ran(status, *words, heavy=("tensorflow", "keras")):
    assert main(words) == status, words
    assert not set(heavy) & set(sys.modules), words

passed, failed, trace = sys.argv[1:]
ran(0, "show", passed, heavy=("tensorflow", "keras", "numpy", "pytest"))
ran(1, "show", failed, heavy=("tensorflow", "keras", "numpy", "pytest"))
ran(0, "analyze", trace)
ran(0, "compare", trace, trace)
ran(0, "padding", trace)
ran(0, "check", trace, "--max-xla-launches", "1")
ran(1, "check", trace, "--max-xla-launches", "0")
"""


def test_run_files_and_traces_are_examined_without_tensorflow(tmp_path):
    passed, failed, trace = (tmp_path / name for name in ("a.json", "b.json", "c.xplane.pb"))
    write_run(run_of(record_of(profile(retraces=0), checks=[PASSED])), passed)
    write_run(run_of(record_of(profile(retraces=0), checks=[FAILED])), failed)
    tanh = op("a", "tanh", "f32[100,1000]", "p0")
    trace.write_bytes(trace_of({"f(1)": module(main=[*parameters("f32[100,1000]"), tanh])}, [1]))
    done = python(ALL, passed, failed, trace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("test       metric ")
    assert "FAIL: xla_launches is 1" in done.stdout
    command = [sys.executable, "-m", "pytest_tfperf.cli.main", "check", trace]
    checked = subprocess.run([*command, "--max-xla-launches", "0"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (1, "")
    assert checked.stdout.startswith("FAIL: xla_launches is 1")


@pytest.mark.full
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    steps = [at("train", n, n + 0.5, step_num=n, _r=1) for n in range(2000)]
    long = tmp_path / "long.xplane.pb"  # more text than a pipe holds
    long.write_bytes(space(plane("/host:CPU", line("python", *steps))))
    command = f"{shlex.quote(sys.executable)} -m pytest_tfperf.cli.main analyze --json {shlex.quote(str(long))} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
