from xspace import MS, event, line, plane, space

from pytest_tfperf.analysis.memory import step_peaks
from pytest_tfperf.analysis.steps import find_steps
from pytest_tfperf.trace.xspace import decode_trace


def peaks_of(*levels):
    marks = [event("train", n * 10 * MS, 9 * MS, step_num=n, _r=1) for n in range(2)]
    memory = [event("MemoryAllocation", int(time * MS), 0, bytes_allocated=level) for time, level in levels]
    trace = decode_trace(space(plane("/host:CPU", line("a", *marks), line("b", *memory))))
    return step_peaks(trace, find_steps(trace))


def test_a_peak_is_above_what_was_allocated_when_the_step_began():
    assert peaks_of((1, 100), (2, 700), (3, 100), (11, 150), (12, 120)).tolist() == [600, 50]


def test_a_step_without_allocations_needs_none():
    assert peaks_of((1, 100), (2, 300)).tolist() == [200, 0]


def test_without_events_it_is_not_known():
    assert peaks_of() is None
