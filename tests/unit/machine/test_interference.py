"""Remarks on interference, from readings counted by hand."""

from dataclasses import replace

import pytest

from pytest_tfperf.machine import conditions
from pytest_tfperf.machine.conditions import Conditions, Interference, remarks, share_lost

BEFORE = Conditions(
    at_s=100.0,
    cores=(0, 1),
    own_s=10.0,
    busy_s=50.0,
    stolen_s=1.0,
    clock_mhz=3000.0,
    hot=3,
    quota=(40, 5),
    load=None,
)


def after(**changed):
    """Readings two seconds after `BEFORE`; both cores worked only for this process."""
    return replace(BEFORE, **{"at_s": 102.0, "own_s": 14.0, "busy_s": 54.0} | changed)


def test_quiet_machine_has_no_remarks():
    assert remarks(BEFORE, after()) == ()
    assert (
        remarks(BEFORE, after(busy_s=53.0)) == ()
    )  # ticks may count less than this process says of itself
    assert remarks(BEFORE, BEFORE) == ()


def test_other_load_is_remarked_from_a_twentieth_of_the_cores():
    for busy_s, expected in [(54.19, False), (54.20, True), (55.24, True)]:
        assert bool(remarks(BEFORE, after(busy_s=busy_s))) is expected, busy_s


def test_remark_on_other_load_has_its_share_and_advice():
    assert remarks(BEFORE, after(busy_s=55.24)) == (
        "other processes used 31 % of the 2 cores in the timed window: step_time is "
        "longer for it; stop what else runs there, or compare with --tfperf-against",
    )
    assert (
        "used 100 % of the 2 cores in the timed window: " in remarks(BEFORE, after(busy_s=99.0))[0]
    )


def test_window_of_a_few_ticks_has_no_remark_on_load():
    short = {"at_s": 100.1, "own_s": 10.1}
    assert remarks(BEFORE, after(busy_s=50.19, stolen_s=1.09, **short)) == ()
    assert len(remarks(BEFORE, after(busy_s=50.21, stolen_s=1.11, **short))) == 2


def test_other_load_is_unknown_where_the_cores_changed():
    for cores in [(0,), (0, 2), (0, 1, 2)]:
        found = after(cores=cores, busy_s=90.0, stolen_s=9.0)
        (remark,) = remarks(BEFORE, found)
        assert "cores that this process may use changed" in remark
        assert share_lost(BEFORE, found) is None


def test_stolen_time_is_remarked():
    assert remarks(BEFORE, after(stolen_s=1.19)) == ()
    assert remarks(BEFORE, after(stolen_s=1.6)) == (
        "the hypervisor gave 15 % of the 2 cores to other machines in the timed window: times of this machine are comparable in pairs "
        "only (--tfperf-against)",
    )


def test_clock_change_is_remarked_from_a_tenth():
    for mhz, expected in [
        (2701.0, False),
        (2699.0, True),
        (3299.0, False),
        (3301.0, True),
        (None, False),
    ]:
        found = remarks(BEFORE, after(clock_mhz=mhz))
        assert bool(found) is expected, mhz
        assert (
            not expected
            or f"ran at 3000 MHz when the timed window began and at {mhz:.0f} MHz when it ended"
            in found[0]
        ), (mhz, expected)


def test_heat_and_quota_are_remarked_when_their_counters_rise():
    assert remarks(BEFORE, after(hot=5, quota=(74, 17))) == (
        "cores were slowed for heat 2 times in the timed window: let the machine cool, or lower its frequency",
        "the CPU quota of its container stopped this process in 12 of 34 periods of the timed window: raise the quota (cpu.max, "
        "limits.cpu), or use no more threads than it allows",
    )
    assert remarks(BEFORE, after(hot=None, quota=None)) == ()


@pytest.mark.parametrize(("load", "expected"), [(3.0, False), (3.01, True)])
def test_high_load_average_is_remarked_without_cpu_seconds(load, expected):
    quiet = replace(BEFORE, busy_s=None, stolen_s=None)
    assert bool(remarks(quiet, replace(quiet, load=load))) is expected
    assert (
        not expected
        or "the load average was 3.0 on 2 cores" in remarks(quiet, replace(quiet, load=load))[0]
    )


@pytest.mark.parametrize("fails", [True, False])
def test_notes_are_those_of_the_last_context_also_after_an_error(monkeypatch, fails):
    readings = iter([BEFORE, after(hot=4, busy_s=54.4), BEFORE, after()])
    monkeypatch.setattr(conditions, "read_conditions", lambda: next(readings))
    found = Interference()
    try:
        with found.watched():
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert (len(found.remarks), found.other_load) == (2, pytest.approx(0.1))
    with found.watched():
        pass
    assert (found.remarks, found.other_load) == ((), 0.0)


def test_what_others_had_is_counted_in_shares_of_the_cores():
    cases = [
        ({}, 0.0),
        ({"busy_s": 55.0}, 0.25),  # one of four seconds
        ({"busy_s": 55.0, "stolen_s": 2.0}, 0.5),  # and one that the hypervisor took
        ({"busy_s": 99.0}, 1.0),
        ({"busy_s": 53.0}, 0.0),
        ({"quota": (60, 15)}, 0.5),  # stopped in ten of twenty periods
        ({"quota": (60, 15), "busy_s": 57.0}, 0.75),
        ({"quota": (40, 5)}, 0.0),
        ({"busy_s": None}, None),
    ]
    for changed, expected in cases:
        assert share_lost(BEFORE, after(**changed)) == expected, changed
