"""What a machine did besides, from files of /proc and /sys that a test writes, and from readings counted by hand."""

import os
from dataclasses import replace

import pytest

from pytest_tfperf.machine import conditions
from pytest_tfperf.machine.conditions import (
    Conditions,
    conditions_noted,
    read_conditions,
    read_cpu,
    remarks,
)

# user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second
STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 100 10 20 5000 300 3 7 40 50 0
cpu1 200 0 30 5000 0 0 0 2 0 0
cpu12 9999 0 0 0 0 0 0 0 0 0
intr 5
"""
CPUINFO = "processor\t: 0\ncpu MHz\t\t: 2600.000\n\nprocessor\t: 1\ncpu MHz\t\t: 3400.500\n"
BEFORE = Conditions(
    at_s=100.0,
    cores=2,
    own_s=10.0,
    busy_s=50.0,
    stolen_s=1.0,
    interruptions=7,
    clock_mhz=3000.0,
    hot=3,
    quota=(40, 5),
    load=None,
)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Two cores, hundredths of a second, no GPU."""
    monkeypatch.setattr(conditions, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(conditions, "read_gpus", lambda: ())
    monkeypatch.setattr(os, "sysconf", lambda name: 100)


def files(root, **texts):
    for path, text in texts.items():
        file = root / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def after(**changed):
    """Readings two seconds after `BEFORE`, in which both cores worked for this process alone."""
    return replace(BEFORE, **{"at_s": 102.0, "own_s": 14.0, "busy_s": 54.0} | changed)


def test_cpu_seconds_are_those_of_the_cores_that_this_process_may_use(tmp_path):
    files(tmp_path, proc__stat=STAT)
    found = read_conditions(tmp_path)
    assert found.busy_s == pytest.approx(
        1.00 + 0.10 + 0.20 + 0.03 + 0.07 + 2.00 + 0.30
    )  # guests are in user, waiting is idle
    assert found.stolen_s == pytest.approx(0.42)
    assert found.cores == 2
    assert found.load is None


def test_cpu_seconds_of_others_are_those_of_their_threads_and_children(tmp_path):
    # pid (comm) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
    files(
        tmp_path,
        proc__7__stat="7 (a b) c) S 1 1 1 0 -1 0 9 9 9 9 100 20 3 4 20 0\n",
        proc__8__stat="8 (x) T 1 1 1 0 -1 0 0 0 0 0 1 0 0 0 20 0\n",
    )
    assert read_cpu(tmp_path, processes=[7, 8, 9]).own_s == pytest.approx(1.28)


def test_cores_that_are_named_are_those_that_matter(tmp_path):
    files(tmp_path, proc__stat=STAT)
    found = read_cpu(tmp_path, cores=[1])
    assert (found.cores, found.busy_s) == (1, pytest.approx(2.30))


@pytest.mark.parametrize(
    "stat",
    ["", "cpu  1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7\ncpu1 1 2 3 4 5 6 7\n"],
)
def test_a_system_that_does_not_tell_cpu_seconds_has_its_load_average(tmp_path, stat, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 0.1, 0.1))
    files(tmp_path, proc__stat=stat)
    found = read_conditions(tmp_path)
    assert (found.busy_s, found.stolen_s, found.load) == (None, None, 3.5)


def test_a_system_that_tells_nothing_says_nothing(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "getloadavg")
    found = read_conditions(tmp_path)
    assert (found.busy_s, found.clock_mhz, found.hot, found.quota, found.load) == (None,) * 5
    assert remarks(found, replace(found, at_s=found.at_s + 1, own_s=found.own_s + 1)) == ()


def test_the_clock_is_that_of_the_fastest_core(tmp_path):
    files(tmp_path, proc__cpuinfo=CPUINFO)
    assert read_conditions(tmp_path).clock_mhz == 3400.5
    folder = "sys__devices__system__cpu__cpu{}__cpufreq__scaling_cur_freq"
    files(
        tmp_path,
        **{
            folder.format(0): "1200000\n",
            folder.format(1): "2900000\n",
            folder.format(2): "4000000\n",
        },
    )
    assert read_conditions(tmp_path).clock_mhz == 2900


def test_slowing_for_heat_is_counted_over_the_cores(tmp_path):
    folder = "sys__devices__system__cpu__cpu{}__thermal_throttle__core_throttle_count"
    files(tmp_path, **{folder.format(0): "3\n", folder.format(1): "4\n", folder.format(2): "90\n"})
    assert read_conditions(tmp_path).hot == 7


QUOTA = "nr_periods 34\nnr_throttled 12\nthrottled_usec 99\n"


@pytest.mark.parametrize(
    ("group", "path", "found"),
    [
        ("0::/\n", "sys/fs/cgroup/cpu.stat", (34, 12)),
        ("0::/a/b\n", "sys/fs/cgroup/a/b/cpu.stat", (34, 12)),
        ("0::/a/b\n", "sys/fs/cgroup/a/cpu.stat", (34, 12)),  # a group around it has the quota
        ("3:cpuset:/x\n2:cpu,cpuacct:/y\n0::/\n", "sys/fs/cgroup/cpu,cpuacct/y/cpu.stat", (34, 12)),
        (
            "2:cpu,cpuacct:/docker/1f\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat",
            (34, 12),
        ),  # seen from within a container
        ("3:cpuset:/x\n", "sys/fs/cgroup/cpuset/x/cpu.stat", None),
        ("", "sys/fs/cgroup/cpu.stat", None),
    ],
)
def test_the_quota_is_that_of_the_innermost_control_group_that_has_one(
    tmp_path, group, path, found
):
    files(tmp_path, proc__self__cgroup=group, **{path.replace("/", "__"): QUOTA})
    assert read_conditions(tmp_path).quota == found


def test_a_group_without_a_quota_stops_nobody(tmp_path):
    text = "usage_usec 5\nnr_periods 0\nnr_throttled 0\n"
    files(tmp_path, proc__self__cgroup="0::/\n", **{"sys__fs__cgroup__cpu.stat": text})
    assert read_conditions(tmp_path).quota is None


def test_a_machine_that_did_nothing_besides_is_not_mentioned():
    assert remarks(BEFORE, after()) == ()
    assert (
        remarks(BEFORE, after(busy_s=53.0)) == ()
    )  # ticks may count less than this process says of itself
    assert remarks(BEFORE, BEFORE) == ()


@pytest.mark.parametrize(("busy_s", "said"), [(54.19, False), (54.20, True), (55.24, True)])
def test_other_load_is_said_from_a_twentieth_of_the_cores(busy_s, said):
    assert bool(remarks(BEFORE, after(busy_s=busy_s))) is said


def test_other_load_is_said_with_its_share_and_what_to_do():
    assert remarks(BEFORE, after(busy_s=55.24, interruptions=419)) == (
        "other processes used 31% of the 2 cores in the timed window (involuntary context switches of this one: 412): step_time is "
        "longer for it; stop what else runs there, children of the test too, or compare with --tfperf-against",
    )
    assert (
        "used 100% of the 2 cores in the timed window: "
        in remarks(BEFORE, after(busy_s=99.0, interruptions=None))[0]
    )


def test_a_window_of_a_few_ticks_says_nothing_of_other_load():
    short = {"at_s": 100.1, "own_s": 10.1}
    assert remarks(BEFORE, after(busy_s=50.19, stolen_s=1.09, **short)) == ()
    assert len(remarks(BEFORE, after(busy_s=50.21, stolen_s=1.11, **short))) == 2


def test_what_the_hypervisor_took_is_said():
    assert remarks(BEFORE, after(stolen_s=1.19)) == ()
    assert remarks(BEFORE, after(stolen_s=1.6)) == (
        "the hypervisor gave 15% of the 2 cores to other machines in the timed window: times of this machine are comparable in pairs "
        "only (--tfperf-against)",
    )


@pytest.mark.parametrize(
    ("mhz", "said"),
    [(2701.0, False), (2699.0, True), (3299.0, False), (3301.0, True), (None, False)],
)
def test_a_clock_that_changed_by_a_tenth_is_said(mhz, said):
    found = remarks(BEFORE, after(clock_mhz=mhz))
    assert bool(found) is said
    assert (
        not said
        or f"ran at 3000 MHz when the timed window began and at {mhz:.0f} MHz when it ended"
        in found[0]
    )


def test_heat_and_a_quota_are_said_where_their_counters_rose():
    assert remarks(BEFORE, after(hot=5, quota=(74, 17))) == (
        "cores were slowed for heat 2 times in the timed window: let the machine cool, or lower its frequency",
        "the CPU quota of its container stopped this process in 12 of 34 periods of the timed window: raise the quota (cpu.max, "
        "limits.cpu), or give TensorFlow no more threads than it allows",
    )
    assert remarks(BEFORE, after(hot=None, quota=None)) == ()


@pytest.mark.parametrize(("load", "said"), [(3.0, False), (3.01, True)])
def test_without_cpu_seconds_a_high_load_average_is_said(load, said):
    quiet = replace(BEFORE, busy_s=None, stolen_s=None)
    assert bool(remarks(quiet, replace(quiet, load=load))) is said
    assert (
        not said
        or "the load average was 3.0 on 2 cores" in remarks(quiet, replace(quiet, load=load))[0]
    )


@pytest.mark.parametrize("fails", [True, False])
def test_notes_are_those_of_the_last_context_however_it_ended(monkeypatch, fails):
    readings = iter([BEFORE, after(hot=4), BEFORE, after()])
    monkeypatch.setattr(conditions, "read_conditions", lambda: next(readings))
    notes = []
    try:
        with conditions_noted(notes):
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert len(notes) == 1
    with conditions_noted(notes):
        pass
    assert notes == []


def test_this_machine_can_be_read():
    first, second = conditions.read_conditions(), conditions.read_conditions()
    assert second.at_s > first.at_s
    assert second.own_s >= first.own_s > 0
