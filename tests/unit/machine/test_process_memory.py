"""Readings of the memory of this very process, and of /proc as others write it."""

import ctypes
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tfperf.machine import memory
from pytest_tfperf.machine.memory import (
    Held,
    Resident,
    available_bytes,
    most_growth,
    private_bytes,
    read_heap,
    read_held,
    read_resident,
    reset_most,
)
from pytest_tfperf.values import Unknown

MIB = 1 << 20
glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc 2.33 tells"
)


@glibc
@pytest.mark.parametrize("size", [4096, MIB, 100 * MIB])
def test_the_heap_holds_what_was_allocated(size):
    before = read_heap()
    kept = bytearray(size)
    after = read_heap()
    assert size <= after.held - before.held < size + 8192
    assert after.taken >= after.held
    del kept
    assert abs(read_heap().held - before.held) < 8192


@glibc
def test_small_objects_of_python_are_counted_in_bytes():
    before = read_held()
    kept = [object() for _ in range(50_000)]
    grown = read_held().python - before.python
    # Python had some of them free.
    assert abs(grown - 50_000 * sys.getsizeof(kept[0])) < 20_000
    assert abs(read_held().mapped - before.mapped) < MIB  # their arenas are no other mapping


@glibc
def test_other_mappings_are_seen():
    import mmap

    before = read_held()
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE):
        assert abs(read_held().mapped - before.mapped - 64 * MIB) < MIB


def proc(folder, status="", statm=None):
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/self/status").write_text(status)
    if statm is not None:
        (folder / "proc/self/statm").write_text(statm)
    return folder


@glibc
def test_the_resident_set_is_read_in_kib(tmp_path):
    text = "VmHWM:\t    300 kB\nVmRSS:\t    200 kB\nRssAnon: 7 kB\nVmSwap:\t      4 kB\n"
    found = read_resident(proc(tmp_path, text))
    assert (found.most, found.now, found.swapped) == (300 << 10, 200 << 10, 4 << 10)


@glibc
def test_a_system_that_does_not_show_it_is_unknown(tmp_path):
    for status in ("", "VmRSS:\t 200 kB\n", "VmHWM: x kB\nVmRSS: y\n"):
        assert isinstance(read_resident(proc(tmp_path, status)), Unknown), status


@glibc
def test_mappings_that_are_not_shown_are_unknown(tmp_path):
    for statm in (None, "", "1 2 3", "a b c d e f g"):
        assert isinstance(read_held(proc(tmp_path, statm=statm)), Unknown), statm


def test_growth_is_bounded_by_the_highest_reading_and_what_malloc_kept():
    before = Resident(now=100, most=150, swapped=0, reusable=7)
    after = Resident(now=120, most=180, swapped=0, reusable=0)
    assert most_growth(before, after) == 80 + 7
    assert most_growth(before, replace(before, now=90)) == 50 + 7
    assert isinstance(most_growth(before, replace(after, swapped=1)), Unknown)
    assert most_growth(Unknown("a"), after) == Unknown("a")
    assert most_growth(before, Unknown("b")) == Unknown("b")


def test_a_high_mark_of_before_bounds_nothing():
    before = Resident(now=100 * MIB, most=900 * MIB, swapped=0, reusable=0)
    assert "before the profile" in most_growth(before, replace(before, now=110 * MIB)).why
    assert most_growth(before, replace(before, most=901 * MIB)) == 801 * MIB
    late = replace(before, most=101 * MIB)  # the system counts by CPU
    assert most_growth(late, late) == MIB


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no mark is reset")
def test_the_high_mark_starts_anew():
    freed = bytearray(64 * MIB)
    del freed
    reset_most()
    found = read_resident()
    assert found.most - found.now < 32 * MIB
    reset_most(Path("nowhere"))


def test_a_reading_that_fails_makes_all_samples_unknown(monkeypatch):
    readings = [
        Held(heap=1, python=2, mapped=3),
        Unknown("hidden"),
        Held(heap=1, python=2, mapped=3),
    ]
    monkeypatch.setattr(memory, "read_held", lambda: readings.pop(0))
    monkeypatch.setattr(memory, "accelerator_bytes", lambda: None)
    monkeypatch.setattr(memory, "tensor_bytes", lambda: None)
    use = memory.MemoryUse()
    assert use.samples == Unknown("")
    for n_steps in range(3):
        use.sample(n_steps)
    assert use.samples == Unknown("hidden")


def test_device_memory_that_is_not_told_makes_the_memory_unknown(monkeypatch):
    monkeypatch.setattr(memory, "read_held", lambda: Held(heap=1, python=2, mapped=3))
    monkeypatch.setattr(memory, "accelerator_bytes", lambda: Unknown("untold"))
    monkeypatch.setattr(memory, "tensor_bytes", lambda: None)
    use = memory.MemoryUse()
    use.sample(0)
    assert use.samples == Unknown("untold")


def test_a_new_window_forgets_the_samples_of_the_last(monkeypatch):
    held = Held(heap=1, python=2, mapped=3)
    monkeypatch.setattr(memory, "read_held", lambda: held)
    monkeypatch.setattr(memory, "accelerator_bytes", lambda: 5)
    monkeypatch.setattr(memory, "tensor_bytes", lambda: 7)
    use = memory.MemoryUse()
    use.sample(9)
    use.begin_timed()
    use.sample(0)
    use.sample(4)
    assert use.samples.n_steps == (0, 4)
    assert use.samples.devices == (5, 5)


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_memory_that_is_available_is_the_least_of_system_and_control_groups(tmp_path):
    """A limit of a group counts with what it may drop; one of a group around it counts too."""
    system = {"proc__meminfo": "MemTotal: 9 kB\nMemAvailable:      8 kB\n"}
    v2 = {"memory.max": "6000\n", "memory.current": "5000\n", "memory.stat": "inactive_file 70\n"}
    v1 = {"memory.limit_in_bytes": "900", "memory.usage_in_bytes": "100", "memory.stat": ""}
    unlimited = {"memory.max": "max\n", "memory.current": "5000\n"}
    cases = [
        ("0::/a/b\n", {}, 8192),
        ("0::/a/b\n", {"a/b": unlimited}, 8192),
        ("0::/a/b\n", {"a/b": v2}, 1070),
        ("0::/a/b\n", {"a": v2, "a/b": unlimited}, 1070),
        ("0::/\n", {"": v2}, 1070),
        ("0::/\n", {"": {**v2, "memory.current": "7000"}}, 0),
        ("2:cpu:/y\n3:memory:/y\n0::/\n", {"memory/y": v1}, 800),
        ("", {"": v2}, 8192),
    ]
    for n, (own, groups, bytes_) in enumerate(cases):
        root = tmp_path / str(n)
        files = {
            f"sys__fs__cgroup__{group}__{name}": text
            for group, texts in groups.items()
            for name, text in texts.items()
        }
        write(root, **system, proc__self__cgroup=own, **files)
        assert available_bytes(root) == bytes_, (own, groups)
    assert available_bytes(tmp_path) is None


def test_private_memory_is_that_of_all_processes_of_the_groups(tmp_path):
    for pid, group in ((10, 10), (11, 10), (12, 12)):
        write(
            tmp_path,
            **{
                f"proc__{pid}__stat": f"{pid} (a b) S 1 {group} {'0 ' * 20}",
                f"proc__{pid}__statm": f"900 {pid} 3 1 0 1 0",
            },
        )
    page = os.sysconf("SC_PAGE_SIZE")
    assert private_bytes([10], tmp_path) == (7 + 8) * page
    assert private_bytes([10, 12], tmp_path) == (7 + 8 + 9) * page
    assert private_bytes([9], tmp_path) == 0
