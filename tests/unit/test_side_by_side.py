"""The page that compares one trace in XProf and here: both columns of its table, computed anew."""

import json
import re

import pytest
from helpers.paths import ROOT

from pytest_tfperf.analysis.multi_host import analyse_job
from pytest_tfperf.report.step_verdict import verdict

DATA = ROOT / "tests" / "data" / "side_by_side"
PAGE = (ROOT / "docs" / "evidence" / "side_by_side.md").read_text("utf-8")
XPROF = json.loads((DATA / "xprof.json").read_text("utf-8"))
UNITS = {"": 1, "µs": 1e-6, "ms": 1e-3, "%": 1e-2, "MiB": 2**20}
SUB = "StatefulPartitionedCall/adam/Sub_3"


@pytest.fixture(scope="module")
def profile():
    ((trace,), errors) = analyse_job([DATA / "slow_source.xplane.pb"])
    assert not errors
    return trace.profile


def shown(column):
    """The numbers of a column of the table, in base units, and half of their last digits."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)[1:]
    found = {}
    for name, *values in rows:
        number, unit = re.fullmatch(r"([\d.]+) ?(\D*)", values[column]).groups()
        digit = 10.0 ** -len(number.partition(".")[2])
        found[name] = (float(number) * UNITS[unit], 0.5001 * digit * UNITS[unit])
    return found


def check(wanted, found):
    assert list(wanted) == list(found)
    for name, (number, half) in wanted.items():
        assert number == pytest.approx(found[name], abs=half), name


def test_the_column_of_xprof_has_its_answers():
    steps, ops, memory = XPROF["steps"], XPROF["ops"], XPROF["memory"]
    sums = {key: sum(step[key] for step in steps) / 1e3 for key in steps[0] if key != "stepnum"}
    each = {name: op["total_self_time"] / op["occurrences"] / 1e6 for name, op in ops.items()}
    check(
        shown(0),
        {
            "steps": len(steps),
            "mean step, of the six": sums["stepTimeMs"] / 6,
            "input, of the six": sums["infeedTimeMs"] / 6,
            "host compute, of the six": sums["hostComputeTimeMs"] / 6,
            "other, of the six": sums["otherTimeMs"] / 6,
            "share of input": sums["infeedTimeMs"] / sums["stepTimeMs"],
            "the generator, a call": each["Iterator::Root::Prefetch::FlatMap[0]::Generator"],
            "self time of Prefetch, a call": each["Iterator::Root::Prefetch"],
            "self time of `adam/Sub_3`, a step": each[SUB],
            "eager ops": float(XPROF["host_op_time_eager_percent"].removesuffix("%")),
            "most memory in the trace": memory["peakBytesInUse"],
            "most memory in the process": memory["peakBytesUsageLifetime"],
        },
    )
    assert XPROF["input_conclusion"].partition(". ")[0] in PAGE.replace("\n", " ")


def test_our_column_is_that_of_the_trace(profile):
    steps = profile.steps
    six = [step for step in steps if step.name in {one["stepnum"] for one in XPROF["steps"]}]
    mean = {part: sum(step.parts_s[part] for step in six) / 6 for part in six[0].parts_s}
    stages = {row["stage"].strip(): row for row in profile.tables["stages"].records()}
    ops = {row["op"]: row for row in profile.tables["host_ops"].records()}
    (memory,) = profile.tables["memory"].records()
    period = sum(step.period_s for step in six) / 6
    check(
        shown(1),
        {
            "steps": len(steps),
            "mean step, of the six": period,
            "input, of the six": mean["input"],
            "host compute, of the six": mean["host_compute"],
            "other, of the six": mean["other"],
            "share of input": profile.value("input_bound").number,
            "the generator, a call": stages["Generator"]["element_s"],
            "self time of Prefetch, a call": stages["Prefetch"]["self_s"],
            "self time of `adam/Sub_3`, a step": ops[SUB]["self_s"],
            "eager ops": profile.value("eager_ops").number,
            "most memory in the trace": memory["peak"],
            "most memory in the process": memory["lifetime_peak"],
        },
    )
    assert verdict(profile).rstrip(".") in PAGE.replace("\n", " ")
    assert f"of the six it is {100 * mean['input'] / period:.1f} %" in PAGE
