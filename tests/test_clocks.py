"""Durations come from a clock that no setting of the time can move."""

import ast
from pathlib import Path

import pytest

import pytest_tfperf

PACKAGE = Path(pytest_tfperf.__file__).parent
WALL_CLOCKS = {
    "time",
    "time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "clock_gettime",
    "today",
    "utcnow",
}
TIMESTAMPS = {("session.py", "now")}  # when a run was, which nothing is computed from


def asked(path):
    """Names of the wall clocks that a module takes from `time` or `datetime`, by import or by attribute."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in WALL_CLOCKS)
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("time", "datetime", "date")
        ):
            yield from {node.attr} & (WALL_CLOCKS | {"now"})


def test_a_wall_clock_is_recognised(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import time\nfrom time import time_ns, perf_counter\ntime.time()\ntime.monotonic()\ndatetime.now()\n"
    )
    assert sorted(asked(path)) == ["now", "time", "time_ns"]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_duration_is_of_a_clock_that_can_jump(path):
    assert {(str(path.relative_to(PACKAGE)), name) for name in asked(path)} <= TIMESTAMPS
