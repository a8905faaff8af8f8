"""The scope under which a value is stored."""

import pytest
from helpers.builders import profile, value

from pytest_tfperf.baseline.entry import stored
from pytest_tfperf.metrics import MACHINE, PLATFORM, PROGRAM


@pytest.mark.parametrize(("detail", "scope"), [({}, PROGRAM), ({"of_platform": True}, PLATFORM)])
def test_flops_of_programs_for_a_platform_hold_there(detail, scope):
    measured = profile(flops=value("flops", 512.0, **detail), retraces=0)
    found = {each: stored(measured, each) for each in (PROGRAM, PLATFORM, MACHINE)}
    assert [each for each in found if "flops" in found[each]] == [scope]
    assert found[PROGRAM]["retraces"] == 0
