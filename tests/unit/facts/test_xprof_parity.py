"""Our step table against XProf's, on every trace there is an answer of XProf's for; differences stand in docs/explanation/xprof.md."""

import json
from fnmatch import fnmatch

import pytest
from helpers.paths import DATA
from helpers.traces import SYNTHETIC, real_trace
from helpers.xprof import COLUMNS, reasons

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import read_trace

TPU = {"input": "tcInfeedTimeMs", "output": "tcOutfeedTimeMs"}


@pytest.fixture(scope="module")
def expected():
    return json.loads((DATA / "xprof_expected.json").read_text())


def ours_of(path):
    trace = read_trace(path)
    try:
        steps = find_steps(trace)
    except TraceError:
        return {}
    breakdown = break_down(trace, steps)
    table = {}
    for index, name in enumerate(steps.names):
        row = {part: column[index] * 1e-9 for part, column in breakdown.parts_ps.items()} | {
            "period": steps.period_ps[index] * 1e-9
        }
        assert sum(row[part] for part in breakdown.parts_ps) == pytest.approx(row["period"])
        assert min(row.values()) >= 0
        table[name] = row
    return table


def differences(name, answer):
    """The columns in which a trace differs from XProf's answer."""
    ours = ours_of(
        SYNTHETIC / name
        if (SYNTHETIC / name).exists()
        else real_trace(name.removesuffix(".xplane.pb"))
    )
    by_number = {step.rpartition(" ")[2]: row for step, row in ours.items()}
    found = {"steps"} if len(ours) != len(answer["steps"]) else set()
    for theirs in answer["steps"]:
        row = ours.get(theirs["stepnum"]) or by_number.get(theirs["stepnum"])
        columns = TPU if answer["hardware"] == "TPU" else COLUMNS
        if row is not None:
            differing = {
                column for column, key in columns.items() if abs(row[column] - theirs[key]) > 1e-6
            }
            if differing and differing <= {
                "period",
                "other",
            }:  # the gap to the next step, and nothing else
                assert row["other"] - theirs["otherTimeMs"] == pytest.approx(
                    row["period"] - theirs["stepTimeMs"]
                )
            found |= differing
    return found


# XProf assigns an op that begins where a step ends to the step that ends: its own figures for these do not add up
TOUCHING = ("t1_tpu_infeed.xplane.pb",)


def test_every_difference_from_xprof_has_a_reason_and_every_reason_a_difference(expected):
    unused, unexplained = set(range(len(reasons(live=False)))), {}
    for name, answer in expected.items():
        if name in TOUCHING:
            continue
        found = differences(name, answer)
        for number, (patterns, columns) in enumerate(reasons(live=False)):
            if any(fnmatch(name, pattern) for pattern in patterns) and found & columns:
                unused.discard(number)
        allowed = {
            c
            for patterns, columns in reasons(live=False)
            if any(fnmatch(name, pattern) for pattern in patterns)
            for c in columns
        }
        if found - allowed:
            unexplained[name] = found - allowed
    assert unexplained == {}
    assert unused == set()


def test_a_gpu_that_waits_for_input_is_input_bound(expected):
    trace = read_trace(SYNTHETIC / "z8_gpu_inputbound.xplane.pb")
    assert break_down(trace, find_steps(trace)).share("input") == pytest.approx(0.9, abs=0.02)


def test_a_tpu_s_compute_and_collectives_are_what_xprof_calls_compute(expected):
    ours = ours_of(SYNTHETIC / "u1_tpu_infeed.xplane.pb")
    for theirs in expected["u1_tpu_infeed.xplane.pb"]["steps"]:
        row = ours[theirs["stepnum"]]
        assert row["device_compute"] + row["collective"] == pytest.approx(theirs["tcComputeTimeMs"])


def test_the_real_tpu_trace_has_as_many_steps_as_it_ran(expected):
    steps = find_steps(read_trace(real_trace("tpu_v6e_jax_inference")))
    assert (len(steps), steps.source, steps.names[0]) == (100, "XLA Modules", "jit_f 0")
