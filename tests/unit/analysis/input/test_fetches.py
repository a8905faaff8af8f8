"""Waits in the timed window, of fetches whose seconds are counted by hand, and what they settle."""

from dataclasses import replace

import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.input.fetches import TimedWaits, ready_s, taken_ns, timed_waits
from pytest_tfperf.analysis.profile import profile_of, settling_steps
from pytest_tfperf.recording import Fetches, Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON, Source

READY = 0.001
RECORDING = Recording(name="", trace=None, workload={})


def fetches_of(*next_s, call_s=0.010, pause_s=()):
    """Calls of 10 ms with these seconds in `next()`."""
    return Fetches(
        next_s=next_s,
        call_s=(call_s,) * len(next_s),
        pause_s=pause_s or (0.0,) * len(next_s),
        last_ns=0,
    )


def traced(fetch=(0, 4), wait=(1, 2), kept=1.0, name=FETCH, others=(), limit=5, made_ms=()):
    """Twenty steps of 10 ms with a `next()`, and a producer whose elements are `kept` of those consumed; in ms. The first were made at `made_ms`."""
    events, produced = [], []
    ids = [int(1e6 * time) for time in (*made_ms, *range(1000, 1020))]
    for n in range(20):
        begin = 10 * n
        events += [
            at("train", begin, begin + 10, step_num=n, _r=1, tfperf=1, epoch=0),
            at("FunctionRun", begin + 5, begin + 6),
            at(name, begin + fetch[0], begin + fetch[1]),
            at("IteratorGetNextOp::DoCompute", begin + wait[0], begin + wait[1]),
            at("Iterator::Root", begin + wait[0], begin + wait[1], id=9, name="p"),
            at(
                "Iterator::Root::Prefetch",
                begin + wait[0],
                begin + wait[1],
                id=1,
                parent_id=9,
                name="p",
                buffer_limit=str(limit),
            ),
            at("PrefetchConsume", begin + wait[0] + 0.1, begin + wait[0] + 0.2, element_id=ids[n]),
        ]
        start = begin / kept
        produced += [
            at("PrefetchProduce", start, start + 5, element_id=n),
            at("Iterator::Root::Prefetch::Map", start + 1, start + 4, id=2, parent_id=1, name="m"),
        ]
    host = plane("/host:CPU", line("python", *events), line("tf_data_thread", *produced), *others)
    return decode_trace(space(host))


def test_a_ready_next_takes_the_median_of_what_is_no_wait():
    assert ready_s(traced(fetch=(0, 4), wait=(1, 3))) == pytest.approx(0.002)
    assert ready_s(traced(name="other")) == 0


def test_a_fetch_counts_whole_where_it_waits_for_more_than_a_third_of_it():
    cases = [
        (0.001, 0.0),
        (0.0015, 0.05),  # waited for a third of it, so only the wait counts
        (0.0016, 0.16),
        (0.0005, 0.0),
        (0.008, 0.8),
    ]
    for next_s, share in cases:
        assert timed_waits(fetches_of(next_s), READY).share == pytest.approx(share), next_s


def test_a_pause_before_a_block_that_waits_belongs_to_wait_and_period():
    paused = fetches_of(0.004, 0.001, 0.005, 0.001, 0.001, pause_s=(0.0, 0.010, 0.0, 0.010, 0.0))
    assert timed_waits(paused, READY).share == pytest.approx((0.004 + 0.015) / 0.060)
    assert timed_waits(paused, READY, pauses=False).share < timed_waits(paused, READY).share


def test_the_visible_part_of_waits_counts():
    assert timed_waits(fetches_of(0.004), READY, visible=0.5).share == pytest.approx(0.2)


def test_halves_of_a_window():
    found = timed_waits(fetches_of(0.001, 0.001, 0.004, 0.004), READY)
    assert found == TimedWaits(share=pytest.approx(0.2), halves=(0.0, pytest.approx(0.4)))
    assert found.emptied
    assert found.draining(1.0)


def test_buffers_at_the_boundary():
    cases = [
        ((0.0, 0.05), 1.0, False, False),
        ((0.0, 0.051), 0.051, True, True),
        ((0.0, 0.051), 0.05, True, False),  # too small a buffer for so many steps
        ((0.25, 0.2), 1.0, True, False),
    ]
    for halves, most, emptied, draining in cases:
        found = TimedWaits(share=0.1, halves=halves)
        assert (found.emptied, found.draining(most)) == (emptied, draining), (halves, most)


def bound(trace, fetches, **recording):
    value = profile_of(Evidence(replace(RECORDING, fetches=fetches, **recording), trace)).value(
        "input_bound"
    )
    return value.number, value.source


WAITS, READY_ONES = fetches_of(*[0.008] * 4), fetches_of(*[0.002] * 4)


def test_the_timed_window_tells_the_share_and_not_the_trace():
    assert bound(traced(), None) == (pytest.approx(0.1), Source.TRACE)
    assert bound(traced(), WAITS) == (pytest.approx(0.8), Source.TIMED)
    assert bound(traced(), READY_ONES) == (0, Source.TIMED)


@pytest.mark.parametrize(
    ("next_s", "share", "source"),
    [
        (0.0038, 0.08, Source.TIMED),  # a ready next() takes 3 ms, so 0.8 of 10 ms are waits
        (0.0046, 0.46, Source.TIMED),  # large waits are those of the timed window
    ],
)
def test_larger_waits_in_the_trace_do_not_count(next_s, share, source):
    found = bound(traced(), fetches_of(*[next_s] * 4))
    assert found == (pytest.approx(share), source)


def test_of_small_waits_the_smaller_count():
    """A trace of waits of 0.05 ms in steps of 10 ms, beside 0.85 ms in the timed window."""
    found = bound(traced(wait=(1, 1.05)), fetches_of(*[0.0048] * 4))
    assert found == (pytest.approx(0.005), Source.TRACE)


def test_a_python_iterator_is_waited_for_as_long_as_its_next_takes():
    assert bound(traced(name=FETCH_PYTHON), READY_ONES) == (pytest.approx(0.2), Source.TIMED)


def test_waits_behind_ops_of_other_threads_count_as_in_the_trace():
    model = line(
        "tf_Compute/2",
        *(at("dense/MatMul:MatMul", 10 * n + 1, 10 * n + 1.5) for n in range(20)),
    )
    assert bound(traced(others=[model]), WAITS) == (pytest.approx(0.4), Source.TIMED)


@pytest.mark.parametrize("missing", ["fetch events", "host alone"])
def test_a_trace_tells_where_the_timed_window_cannot(missing):
    if missing == "fetch events":
        assert bound(traced(name="other"), WAITS)[1] is Source.TRACE
        return
    pushes = line("pushes", at("x:InfeedEnqueueTuple", 6, 7))
    assert bound(traced(others=[pushes]), WAITS)[1] is Source.TRACE


def test_buffers_that_drain_under_the_profiler_alone_hide_nothing():
    cases = [
        (None, True, 1 - 0.9 * 0.8, Source.CORRECTED),
        (READY_ONES, False, 0.2, Source.CORRECTED),
        (READY_ONES, True, 0.0, Source.TIMED),  # they had drained before
        (WAITS, False, 0.8, Source.TIMED),  # they ran empty
    ]
    for fetches, settled, share, source in cases:
        found = bound(traced(kept=0.8), fetches, settled=settled)
        assert found == (pytest.approx(share, abs=1e-6), source), (fetches, settled, share)


LATE = fetches_of(*[0.002] * 30, *[0.008] * 30)


def test_steps_that_buffers_need_to_drain():
    cases = [
        (WAITS, 0.8, 0, 0),  # they wait all along: the buffers are empty
        (READY_ONES, 0.8, 24, 30),  # 5 elements ÷ 0.2 = 25 steps, and a fifth more
        (READY_ONES, 0.8, 25, 0),
        (READY_ONES, 1.0, 0, 0),
        (LATE, 1.0, 10, 48),  # 1.2 × (10 + 60 ÷ 2)
        (None, 0.8, 10**6, 22),  # 1.2 × 5 ÷ 0.28
    ]
    for fetches, kept, before, steps in cases:
        assert settling_steps(traced(kept=kept), before, fetches) == steps, (fetches, kept, before)


# eight steps take their elements at 30, 40, … 100 ms, and wait for 8 of 10 ms
EIGHT = replace(fetches_of(*[0.008] * 8), last_ns=100_000_000)


def test_a_timed_call_takes_its_element_behind_its_next():
    times = Fetches(
        next_s=(0.001, 0.002, 0.004),
        call_s=(0.010, 0.020, 0.030),
        pause_s=(0.005, 0.0, 0.100),
        last_ns=1_000_000_000,
    )
    assert taken_ns(times).tolist() == [867_000_000, 878_000_000, 1_000_000_000]
    assert taken_ns(None).size == 0


def test_a_late_next_is_no_empty_buffer():
    """Elements that were made before the timed steps, and left behind them."""
    cases = [
        ((), 0.8, Source.TIMED, 0),
        ((1, 2, 3), 0.8, Source.TIMED, 0),  # one was not ready, and two are as good as none
        ((1, 2, 3, 4), 1 - 0.2 * 0.8, Source.CORRECTED, 8),  # 1.2 × 5 ÷ 0.84
    ]
    for made_ms, share, source, steps in cases:
        trace = traced(kept=0.8, made_ms=made_ms)
        assert bound(trace, EIGHT, settled=False) == (pytest.approx(share, abs=1e-6), source), (
            made_ms
        )
        assert settling_steps(trace, 0, EIGHT) == steps, made_ms


def test_elements_made_in_the_timed_window_tell_if_the_buffer_drained():
    cases = [
        (1.0, (40, 52.5, 65, 77.5, 90), 1 - 0.2 * 0.8),  # 4 made while 5 were taken
        (0.5, (40, 50, 60, 70), 0.8),  # the profiler alone made the pipeline slow
        (0.5, (90, 91, 92, 93, 101), 0.8),
        (0.5, (98, 99, 99.5, 101), 0.8),  # too few
    ]
    for kept, made_ms, share in cases:
        trace = traced(kept=kept, made_ms=made_ms)
        assert bound(trace, EIGHT)[0] == pytest.approx(share, abs=1e-6), made_ms
        assert (settling_steps(trace, 10**6, EIGHT) > 0) == (share > 0.8), made_ms


def test_numbers_that_are_no_times_are_left_out():
    for fetches in [replace(EIGHT, last_ns=1_800_000_000 * 10**9), None]:
        for number in [-1, -(2**62), 2**62]:
            trace = traced(kept=0.8, made_ms=[number / 1e6] * 20)
            assert bound(trace, fetches, settled=False) == bound(
                traced(kept=0.8), fetches, settled=False
            ), (fetches, number)


def test_a_full_buffer_before_the_slow_stage_holds_no_elements_back():
    trace = traced(kept=0.96, made_ms=range(1, 21))
    assert bound(trace, EIGHT)[1] is Source.TIMED
    assert settling_steps(trace, 0, EIGHT) == 0


def test_buffers_that_may_have_run_empty_after_the_timed_window():
    """Steps that wait in the trace alone: the buffers fed them before, or the profiler slows the pipeline down."""
    cases = [
        (5, 12, 15),  # 5 elements ÷ 0.4 = 12.5 steps, and a fifth more
        (5, 13, 0),
        (1000, 23, 29),  # 4 timed and 20 traced steps, and a fifth more
        (1000, 24, 0),
        (0, 0, 0),  # nothing is buffered
    ]
    for limit, before, steps in cases:
        trace = traced(wait=(1, 4), limit=limit)
        assert settling_steps(trace, before, fetches_of(*[0.001] * 4)) == steps, before
