"""Readings of conditions, from files of /proc and /sys that a test writes."""

import os
from dataclasses import replace

import pytest

from pytest_tfperf.machine import conditions
from pytest_tfperf.machine.conditions import read_conditions, read_cpu, remarks

# user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second
STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 100 10 20 5000 300 3 7 40 50 0
cpu1 200 0 30 5000 0 0 0 2 0 0
cpu12 9999 0 0 0 0 0 0 0 0 0
intr 5
"""
CPUINFO = "processor\t: 0\ncpu MHz\t\t: 2600.000\n\nprocessor\t: 1\ncpu MHz\t\t: 3400.500\n"


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


def test_cpu_seconds_count_the_cores_of_this_process(tmp_path):
    files(tmp_path, proc__stat=STAT)
    found = read_conditions(tmp_path)
    assert found.busy_s == pytest.approx(
        1.00 + 0.10 + 0.20 + 0.03 + 0.07 + 2.00 + 0.30
    )  # guests are in user, waiting is idle
    assert found.stolen_s == pytest.approx(0.42)
    assert found.cores == (0, 1)
    assert found.load is None


def test_own_seconds_of_groups_include_threads_and_children(tmp_path):
    # pid (comm) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
    files(
        tmp_path,
        proc__7__stat="7 (a b) c) S 1 7 1 0 -1 0 9 9 9 9 100 20 3 4 20 0\n",
        proc__8__stat="8 (x) T 7 7 1 0 -1 0 0 0 0 0 1 0 0 0 20 0\n",
        proc__9__stat="9 (y) R 1 9 1 0 -1 0 0 0 0 0 50 0 0 0 20 0\n",
    )
    assert read_cpu(tmp_path, groups=[7, 10]).own_s == pytest.approx(1.28)


def test_cpu_seconds_count_only_named_cores(tmp_path):
    files(tmp_path, proc__stat=STAT)
    found = read_cpu(tmp_path, cores=[1])
    assert (found.cores, found.busy_s) == ((1,), pytest.approx(2.30))


def test_load_average_is_read_without_cpu_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 0.1, 0.1))
    for stat in (
        "",
        "cpu  1 2 3\n",
        "cpu0 1 2 3 4 5 6 7 8\n",
        "cpu0 1 2 3 4 5 6 7\ncpu1 1 2 3 4 5 6 7\n",
    ):
        files(tmp_path, proc__stat=stat)
        found = read_conditions(tmp_path)
        assert (found.busy_s, found.stolen_s, found.load) == (None, None, 3.5), stat


def test_system_without_readings_has_no_remarks(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "getloadavg")
    found = read_conditions(tmp_path)
    assert (found.busy_s, found.clock_mhz, found.hot, found.quota, found.load) == (None,) * 5
    later = replace(found, at_s=found.at_s + 1, own_s=found.own_s + 1)
    assert remarks(found, later) == ()


def test_clock_is_that_of_the_fastest_core(tmp_path):
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


def test_heat_counts_are_summed_over_the_cores(tmp_path):
    folder = "sys__devices__system__cpu__cpu{}__thermal_throttle__core_throttle_count"
    files(tmp_path, **{folder.format(0): "3\n", folder.format(1): "4\n", folder.format(2): "90\n"})
    assert read_conditions(tmp_path).hot == 7


QUOTA = "nr_periods 34\nnr_throttled 12\nthrottled_usec 99\n"


QUOTAS = [
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
]


def test_quota_is_that_of_the_innermost_group_with_one(tmp_path):
    for n, (group, path, found) in enumerate(QUOTAS):
        root = tmp_path / str(n)
        files(root, proc__self__cgroup=group, **{path.replace("/", "__"): QUOTA})
        assert read_conditions(root).quota == found, (group, path)


def test_group_without_a_quota_has_none(tmp_path):
    text = "usage_usec 5\nnr_periods 0\nnr_throttled 0\n"
    files(tmp_path, proc__self__cgroup="0::/\n", **{"sys__fs__cgroup__cpu.stat": text})
    assert read_conditions(tmp_path).quota is None


def test_readings_of_this_machine_advance():
    first, second = conditions.read_conditions(), conditions.read_conditions()
    assert second.at_s > first.at_s
    assert second.own_s >= first.own_s > 0
