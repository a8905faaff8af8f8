"""The scope under which a value is stored, and the lists beside it."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, profile, value

from pytest_tfperf.baseline.structure import stored, structure_of
from pytest_tfperf.metric_registry import MACHINE, PLATFORM, PROGRAM
from pytest_tfperf.values import Column, Table


@pytest.mark.parametrize(("detail", "scope"), [({}, PROGRAM), ({"of_platform": True}, PLATFORM)])
def test_flops_of_programs_for_a_platform_hold_there(detail, scope):
    measured = profile(flops=value("flops", 512.0, **detail), retraces=0)
    found = {each: stored(measured, each) for each in (PROGRAM, PLATFORM, MACHINE)}
    assert [each for each in found if "flops" in found[each]] == [scope]
    assert found[PROGRAM]["retraces"] == 0


@pytest.mark.parametrize("detail", [{}, {"low": 256.0, "high": 512.0}])
def test_ops_are_stored_unless_they_differ_from_step_to_step(detail):
    columns = [Column(key, key) for key in ("type", "key", "place", "dtype", "ops", "flops")]
    row = ("MatMul", "model.py:block", "at model.py:7", "float32", 2.0, 512)
    measured = replace(
        profile(flops=value("flops", 512.0, **detail)),
        tables={"op_work": Table.of("", columns, [row])},
    )
    found = structure_of(measured, LAPTOP).get("ops")
    wanted = {LAPTOP["platform"]: {"MatMul float32 256 model.py:block": 2}}
    assert found == (None if detail else wanted)
