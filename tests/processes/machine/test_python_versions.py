"""Calls of Python functions in the interpreters of this machine, which count in two ways."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_tfperf

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("processes")]

SCRIPT = """
import sys, threading
from importlib.util import find_spec
from types import ModuleType

class Struct:
    def __init_subclass__(cls, **_): pass

if find_spec("msgspec") is None:  # which counting needs not, and a Python of this machine may lack
    sys.modules["msgspec"] = ModuleType("msgspec")
    vars(sys.modules["msgspec"]).update(Struct=Struct, Meta=dict)

from pytest_tfperf.machine.calls import CallCounter
from pytest_tfperf.values import Unknown

def leaf(): return 1
def recursive(n): return 0 if n == 0 else recursive(n - 1)
def numbers(n): yield from range(n)
def step():
    leaf(); leaf(); recursive(3); list(numbers(3)); len("x")
def counted(*steps):
    counter = CallCounter()
    with counter:
        for one in steps:
            counter.begin(); one(); counter.end(1)
    return counter.found()

assert counted(step, step).steps == ((11, 1), (11, 1)), counted(step)
over = threading.Event()
def busy():
    while not over.is_set(): step()
thread = threading.Thread(target=busy); thread.start()
found = counted(*[step] * 200); over.set(); thread.join()
assert set(found.steps) == {(11, 1)}, found.steps
if hasattr(sys, "monitoring"):
    tools = sys.monitoring
    sys.setprofile(lambda *_: None)
    mine = sys.getprofile()
    for tool in (tools.PROFILER_ID, tools.COVERAGE_ID): tools.use_tool_id(tool, "another")
    assert counted(step).steps == ((11, 1),)
    assert sys.getprofile() is mine
    sys.setprofile(None)
    assert tools.get_tool(tools.PROFILER_ID) == tools.get_tool(tools.COVERAGE_ID) == "another"
    assert tools.get_tool(3) is None
    for tool in (3, 4): tools.use_tool_id(tool, "another")
    assert counted(step) == Unknown("other tools have taken all places of sys.monitoring")
    tools.free_tool_id(4)
    assert counted(step).steps == ((11, 1),)
    assert (tools.get_tool(3), tools.get_tool(4)) == ("another", None)
    import cProfile
    tools.free_tool_id(tools.PROFILER_ID)
    profile = cProfile.Profile(); profile.enable()
    try: assert counted(step).steps == ((11, 1),)
    finally: profile.disable()
print("ok")
"""


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_other_versions_of_python_count_the_same(version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    root = Path(pytest_tfperf.__file__).parents[1]
    done = subprocess.run(
        [python, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def interpreter(version):
    """The path of a Python of this version, from PATH or pyenv."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    found = shutil.which(f"python{version}")
    others = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in [*others, *([found] if found else [])]:
        if (
            subprocess.run(
                [path, "-c", f"import sys; assert sys.version.startswith({version!r})"], check=False
            ).returncode
            == 0
        ):
            return str(path)
    return None
