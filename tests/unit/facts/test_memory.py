import pytest
from helpers.xspace import MS, event, line, plane, space

from pytest_tfperf.facts.memory import step_peaks
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import decode_trace


def peaks_of(*levels):
    marks = [event("train", n * 10 * MS, 9 * MS, step_num=n, _r=1) for n in range(2)]
    memory = [
        event("MemoryAllocation", int(time * MS), 0, bytes_allocated=level)
        for time, level in levels
    ]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    return step_peaks(trace, find_steps(trace))


def test_a_peak_is_above_what_was_allocated_when_the_step_began():
    assert peaks_of((1, 100), (2, 700), (3, 100), (11, 150), (12, 120)).tolist() == [600, 50]


@pytest.mark.parametrize(("name", "level"), [("MemoryAllocation", 50), ("MemoryDeallocation", 0)])
def test_the_first_event_of_the_trace_changes_what_the_step_began_with(name, level):
    """The step began with 20 bytes: 30 are allocated, or 20 are freed, and 90 are held later."""
    marks = [event("train", 0, 9 * MS, step_num=0, _r=1)]
    size = abs(level - 20)
    memory = [
        event(name, MS, 0, bytes_allocated=level, allocation_bytes=size),
        event("MemoryAllocation", 2 * MS, 0, bytes_allocated=90, allocation_bytes=90 - level),
    ]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    assert step_peaks(trace, find_steps(trace)).tolist() == [70]


def test_a_step_without_allocations_needs_none():
    assert peaks_of((1, 100), (2, 300)).tolist() == [200, 0]


def test_without_events_it_is_not_known():
    assert peaks_of() is None


def test_allocators_have_memory_of_their_own():
    """Two GPUs take turns: 100 more on one, 300 more on the other; the host's does not count beside them."""
    marks = [event("train", 0, 9 * MS, step_num=0, _r=1)]
    levels = [
        ("GPU_0_bfc", 1000),
        ("GPU_1_bfc", 10),
        ("GPU_0_bfc", 1100),
        ("GPU_1_bfc", 310),
        ("gpu_host_bfc", 0),
        ("gpu_host_bfc", 5000),
    ]
    memory = [
        event("MemoryAllocation", (n - 2) * MS, 0, allocator_name=name, bytes_allocated=size)
        for n, (name, size) in enumerate(levels)
    ]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    assert step_peaks(trace, find_steps(trace)).tolist() == [300]


def test_the_memory_of_the_host_is_none_of_an_accelerator_that_does_not_report():
    """As with TF_GPU_ALLOCATOR=cuda_malloc_async, which writes no events."""
    marks = [event("train", 0, 9 * MS, step_num=0, _r=1)]
    memory = [event("MemoryAllocation", MS, 0, allocator_name="gpu_host_bfc", bytes_allocated=90)]
    host = plane("/host:CPU", line("a", *marks), line("b", *memory))
    kernels = line("Stream #1(Compute)", event("gemm", MS, MS), id=1)
    trace = decode_trace(space(host, plane("/device:GPU:0", kernels)))
    assert step_peaks(trace, find_steps(trace)) is None


def test_what_is_reserved_counts():
    marks = [event("train", 0, 9 * MS, step_num=0, _r=1)]
    memory = [
        event(
            "MemoryAllocation", n * MS, 0, index_on_host=0, bytes_allocated=10, bytes_reserved=size
        )
        for n, size in enumerate((0, 90))
    ]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    assert step_peaks(trace, find_steps(trace)).tolist() == [90]
