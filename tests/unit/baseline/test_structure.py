"""The scope under which a value is stored, and the lists beside it."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, SERVER, profile, value

from pytest_tfperf.baseline.structure import (
    Reference,
    against_profile,
    stored,
    structure_checks,
    structure_of,
)
from pytest_tfperf.metric_registry import MACHINE, PLATFORM, PROGRAM
from pytest_tfperf.results import Verdict
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


def test_a_value_that_became_one_of_a_platform_or_no_longer_is_compared_with_the_stored_one():
    def of(number, mark=None, metric="flops"):
        return profile(**{metric: value(metric, number, **({"of_platform": mark} if mark else {}))})

    unknown = profile()
    executables = "executables"
    cases = [
        (of(1e9), of(3e9, True), "REGRESSION"),
        (of(1e9), of(1e9, executables), "PASS"),
        (of(1e9), of(3e9, executables), "INCOMPARABLE"),
        (of(1e9, executables), of(3e9, executables), "REGRESSION"),
        (of(1e9, True), of(3e9), "INCOMPARABLE"),
        (of(1, True, "op_guide_findings"), of(2, None, "op_guide_findings"), "REGRESSION"),
        (of(1e9, True), unknown, "UNKNOWN"),
        (of(1e9), unknown, "UNKNOWN"),
    ]
    for before, now, verdict in cases:
        [found] = against_profile(now, before, "main", "against")
        assert found.verdict.value == verdict, found.sentence


def test_another_platform_s_value_that_is_the_program_s_now_is_told_by_the_platform_alone():
    entry = structure_of(profile(flops=value("flops", 1e9, of_platform=True)), SERVER)
    for now in (profile(flops=3e9), profile(), profile(flops=value("flops", 3e9, of_platform=1))):
        [found] = structure_checks(now, entry, LAPTOP, Reference("the baseline"))
        assert (found.metric, found.verdict) == ("platform", Verdict.INCOMPARABLE)
