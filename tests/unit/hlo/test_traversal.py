"""Dead code, counted by hand, and the user's source lines."""

import pytest
from helpers.hlo import module, op, parameters

from pytest_tfperf.hlo.module import source_line
from pytest_tfperf.hlo.traversal import without_dead_code


def test_dead_code_is_removed_but_parameters_and_callees_stay():
    add, idle = parameters("f32[]"), [op("i", "parameter", "f32[]")]
    main = [
        *parameters("f32[8]", "f32[9]"),
        op("a", "tanh", "f32[8]", "p0"),
        op("dead", "map", "f32[8]", "a", called=["idle"]),
        op("deader", "tanh", "f32[8]", "dead"),
        op("r", "map", "f32[8]", "a", called=["add"]),
    ]
    live = without_dead_code(module(idle=idle, add=add, main=main))
    assert [one.name for one in live.entry.instructions.values()] == ["p0", "p1", "a", "r"]
    assert [part.name for part in live.computations.values()] == ["add", "main"]
    assert without_dead_code(live) == live


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("model.py", "model.py:7"),
        ("/home/me/model.py", "/home/me/model.py:7"),
        ("", None),
        ("dummy_file_name", None),
        ("/venv/lib/python3.11/site-packages/tensorflow/python/framework/ops.py", None),
        ("C:\\py\\site-packages\\keras\\a.py", None),
        ("/usr/lib/python3/dist-packages/jax/core.py", None),
    ],
)
def test_source_line_ignores_installed_packages(file, line):
    assert source_line(op("a", "tanh", "f32[8]", source_file=file, source_line=7)) == line
