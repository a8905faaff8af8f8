"""Memory at its peak counted by hand; and XProf's figures (wheel 2.24.2) for the real traces."""

import pytest
from helpers.tables import cells
from helpers.traces import real
from helpers.xspace import MS, event, line, plane, space

from pytest_tfperf.facts.memory import (
    EARLIER,
    RESERVED,
    Live,
    live_table,
    memory_peaks,
    memory_table,
    over_step_table,
)
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import decode_trace


def allocate(time, address, size, held, op="", *, free=False, **stats):
    """An event of an allocator that holds `held` bytes after it."""
    name = "MemoryDeallocation" if free else "MemoryAllocation"
    named = {"allocator_name": "GPU_0_bfc", **stats} if "index_on_host" not in stats else stats
    said = {
        "bytes_allocated": held,
        "allocation_bytes": size,
        "addr": address,
        "tf_op": op,
        "bytes_available": 1000 - held,
    }
    return event(name, int(time * MS), 0, {**said, **named})


def peaks_of(*memory, n_steps=2, first=0):
    marks = [
        event("train", (first + n * 10) * MS, 9 * MS, step_num=n, _r=1) for n in range(n_steps)
    ]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    return memory_peaks(trace, find_steps(trace))


def test_the_peak_names_what_lived_then():
    (peak,) = peaks_of(
        allocate(1, 1, 100, 400, "a", region_type="output", data_type=19, shape="[50]"),
        allocate(2, 2, 50, 450, "b", region_type="temp", data_type=1, shape="[12]"),
        allocate(3, 2, 50, 400, free=True),
        allocate(4, 3, 100, 500, "a", region_type="output", data_type=19, shape="[50]"),
        allocate(11, 4, 200, 700, "c"),
        allocate(12, 3, 100, 600, free=True),
    )
    assert (peak.allocator, peak.step, peak.peak_bytes, peak.capacity_bytes) == (
        "GPU_0_bfc",
        "train 1",
        700,
        1000,
    )
    assert peak.after_s == pytest.approx(1e-3)
    same = Live(op="a", region="output", dtype="float16", shape="[50]", bytes=200, count=2)
    assert sorted(peak.live, key=lambda live: live.op) == [
        same,
        Live(op="c", region="", dtype="", shape="", bytes=200, count=1),
    ]
    assert peak.earlier_bytes == 300
    table = live_table(peak)
    assert table.rows[0] == (EARLIER, "", "", "", None, 300, 3 / 7)
    assert sum(cells(table, "share")) == pytest.approx(1)


def test_memory_over_a_step_is_the_most_in_each_part_of_it():
    (peak,) = peaks_of(
        allocate(1, 1, 100, 100),
        allocate(3.2, 2, 800, 900),
        allocate(3.3, 2, 800, 100, free=True),
        allocate(7, 3, 300, 400),
        n_steps=1,
    )
    # the step takes 9 ms, a part 0.28125 ms: the parts that begin before 1 ms, 3.2 ms and 7 ms are 3, 11 and 24
    assert [begin for begin, _ in peak.over_step] == pytest.approx(
        [n * 9e-3 / 32 for n in range(32)]
    )
    assert [size for _, size in peak.over_step] == [None] * 3 + [100] * 8 + [900] + [100] * 12 + [
        400
    ] * 8
    table = over_step_table(peak)
    assert table.title == "memory of GPU_0_bfc over train 0, the most in each part of it"
    assert (table.rows, table.n_more) == (peak.over_step, 0)


def test_a_peak_outside_of_the_steps_is_its_lifetime_s():
    (peak,) = peaks_of(
        allocate(1, 1, 100, 100),
        allocate(9.5, 2, 800, 900),
        allocate(9.6, 2, 800, 100, free=True),
        n_steps=1,
    )
    assert (peak.peak_bytes, peak.lifetime_bytes) == (100, 900)


def test_the_lifetime_s_peak_may_be_before_the_trace():
    (peak,) = peaks_of(
        allocate(1, 1, 100, 100, peak_bytes_in_use=950),
        allocate(2, 2, 100, 200, peak_bytes_in_use=950),
    )
    assert (peak.peak_bytes, peak.lifetime_bytes) == (200, 950)


def test_what_is_held_when_a_step_begins_counts():
    (peak,) = peaks_of(allocate(1, 1, 600, 600, "a"), allocate(6, 1, 600, 0, free=True), first=5)
    assert (peak.step, peak.after_s, peak.peak_bytes, peak.live[0].op) == ("train 0", 0, 600, "a")


def test_an_allocator_that_held_nothing_in_the_steps_has_no_peak():
    assert peaks_of(allocate(30, 1, 600, 600)) == []
    assert peaks_of() == []


def test_a_tpu_s_allocators_are_told_apart_by_core_and_reserve_a_stack():
    events = [
        allocate(1 + core, 1, 100, 100, index_on_host=core, bytes_reserved=500 * core)
        for core in range(2)
    ]
    other, first = peaks_of(*events)
    assert [
        (peak.allocator, peak.peak_bytes, peak.reserved_bytes, peak.earlier_bytes)
        for peak in (first, other)
    ] == [
        ("TPU:0", 100, 0, 0),
        ("TPU:1", 600, 500, 0),
    ]
    assert cells(live_table(other), "op") == [RESERVED, ""]


def test_fragmentation_is_a_share_or_unknown():
    for said, share in [(0.25, 0.25), (float("nan"), None), ("0.5", 0.5), (-1.0, None), ("", None)]:
        (peak,) = peaks_of(allocate(1, 1, 100, 100, fragmentation=said))
        assert peak.fragmentation == share, (said, share)


def test_without_what_is_available_the_capacity_is_unknown():
    event_ = event(
        "MemoryAllocation",
        MS,
        0,
        allocator_name="mklcpu",
        bytes_allocated=5,
        allocation_bytes=9,
        addr=1,
    )
    (peak,) = peaks_of(event_)
    assert (peak.allocator, peak.capacity_bytes, peak.earlier_bytes) == (
        "mklcpu",
        None,
        0,
    )  # a deallocation was lost: never less than none
    assert memory_table([peak]).rows == (
        ("mklcpu", 5, "train 0", pytest.approx(1e-3), None, None, 5, None, None),
    )
    assert cells(live_table(peak), "share")[0] == 1


def test_the_peak_of_xprof_s_own_test():
    """xplane_to_memory_profile_test.cc: window peak 7000 of 2000 reserved and 5000 allocated, lifetime 9500."""
    stats = {"index_on_host": 0, "bytes_reserved": 2000}
    (peak,) = peaks_of(
        allocate(1, 1, 256, 3000, peak_bytes_in_use=8500, **stats),
        allocate(2, 1, 256, 256, free=True, peak_bytes_in_use=8500, **stats),
        allocate(3, 2, 5000, 5000, peak_bytes_in_use=9500, **stats),
        n_steps=1,
    )
    assert (
        peak.peak_bytes,
        peak.lifetime_bytes,
        peak.reserved_bytes,
        [live.bytes for live in peak.live],
    ) == (7000, 9500, 2000, [5000])


def test_the_memory_of_the_v100_trace_agrees_with_xprof():
    """
    memory_profile: peaks 6210111488 (5.78 GiB), 6208853760, 4013344768 and 605952 bytes; 554 allocations and 4013337088 bytes more.

    Its lifetime peak of GPU_4 is 5006386688, less than the peak: it is the one that the last event in the file tells.
    """
    peaks = {peak.allocator: peak for peak in memory_peaks(*real("gpu_v100_tf_bert_multiworker"))}
    assert {name: peak.peak_bytes for name, peak in peaks.items()} == {
        "GPU_6_bfc": 6210111488,
        "GPU_4_bfc": 6208853760,
        "GPU_1_bfc": 4013344768,
        "gpu_host_bfc": 605952,
    }
    sixth = peaks["GPU_6_bfc"]
    assert (sum(live.count for live in sixth.live), sixth.earlier_bytes, sixth.capacity_bytes) == (
        554,
        4013337088,
        15477102400,
    )
    assert sixth.fragmentation == pytest.approx(0.000961762)
    assert sixth.live[0] == Live(
        op="replica_6/bert_span_labeler/bert_encoder_1/word_embeddings/GatherV2/Cast",
        region="output",
        dtype="float16",
        shape="[30522,1024]",
        bytes=30522 * 1024 * 2,
        count=1,
    )
    assert peaks["GPU_4_bfc"].lifetime_bytes == 6208853760
    trace, _ = real("gpu_v100_tf_bert_multiworker")
    first = memory_peaks(trace, find_steps(trace))[0]
    assert (first.allocator, first.peak_bytes, first.step) == ("GPU_6_bfc", 6210111488, "0")


def test_the_memory_of_the_tpu_trace_agrees_with_xprof():
    """memory_profile: 21492569216 bytes on core 0, 21491712000 of them the stack; its lifetime peak, 16106341504, is less than that."""
    peaks = {peak.allocator: peak for peak in memory_peaks(*real("tpu_v6e_jax_inference"))}
    assert {name: peak.peak_bytes for name, peak in peaks.items()} == {
        "TPU:0": 21492569216,
        "TPU:1": 21492671104,
        "TPU:2": 21492671104,
        "TPU:3": 21492569216,
    }
    assert (
        peaks["TPU:0"].reserved_bytes,
        peaks["TPU:0"].lifetime_bytes,
        peaks["TPU:0"].earlier_bytes,
    ) == (21491712000, 21492569216, 0)


def test_growth_from_step_to_step_needs_enough_steps():
    for n_steps, least in [(9, 100), (8, None), (3, None)]:
        held = [allocate(n * 10 + 1, n, 100, 100 * (n + 1)) for n in range(n_steps)]
        (peak,) = peaks_of(*held, n_steps=n_steps)
        assert peak.growth_bytes == least, (
            n_steps
        )  # what is held when the first step starts is not told


def test_memory_that_is_freed_again_does_not_grow():
    held = [
        event_
        for n in range(12)
        for event_ in (
            allocate(n * 10 + 1, n, 100, 200),
            allocate(n * 10 + 2, n, 100, 100, free=True),
        )
    ]
    (peak,) = peaks_of(*held, n_steps=12)
    assert peak.growth_bytes == 0
