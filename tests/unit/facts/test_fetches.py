"""Waits in the timed window, of fetches whose seconds are counted by hand, and what they settle."""

from dataclasses import replace

import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.facts.waits import TimedWaits, pipeline_share, taken_ns, timed_waits
from pytest_tfperf.metrics import shares
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.shares import settling_steps
from pytest_tfperf.recording import Fetches, Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON, STOOD_NS, Source

READY = 0.001  # seconds of a `next()` with a ready element, which its thread runs
RECORDING = Recording(name="", trace=None, workload={})


def fetches_of(*stood_s, call_s=0.010, pause_s=()):
    """Calls of 10 ms whose `next()` stands still for so many seconds, and runs for 1 ms besides."""
    next_s = tuple(seconds + READY for seconds in stood_s)
    return Fetches(
        next_s=next_s,
        stood_s=stood_s,
        call_s=(call_s,) * len(next_s),
        pause_s=pause_s or (0.0,) * len(next_s),
        last_ns=0,
    )


def traced(
    fetch=(0, 4),
    wait=(1, 2),
    kept=1.0,
    name=FETCH,
    others=(),
    limit=5,
    made_ms=(),
    stage="Prefetch",
    stood_ms=None,
):
    """Twenty steps of 10 ms with a `next()`, and a producer whose elements are `kept` of those consumed; in ms. The first were made at `made_ms`. The thread stands still while it waits, if nothing else is said."""
    stood_ms = wait[1] - wait[0] if stood_ms is None else stood_ms
    events, produced = [], []
    ids = [int(1e6 * time) for time in (*made_ms, *range(1000, 1020))]
    for n in range(20):
        begin = 10 * n
        events += [
            at("train", begin, begin + 10, step_num=n, _r=1, tfperf=1, epoch=0),
            at("FunctionRun", begin + 5, begin + 6),
            at(name, begin + fetch[0], begin + fetch[1], **{STOOD_NS: int(1e6 * stood_ms)}),
            at("IteratorGetNextOp::DoCompute", begin + wait[0], begin + wait[1]),
            at("Iterator::Root", begin + wait[0], begin + wait[1], id=9, name="p"),
            at(
                f"Iterator::Root::{stage}",
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


def test_the_share_of_a_next_that_stages_of_the_pipeline_run():
    cases = [
        (traced(fetch=(0, 4), wait=(1, 3), stage="Batch", stood_ms=0), 2 / 4),
        (traced(fetch=(0, 4), wait=(1, 3), stage="Batch", stood_ms=1), 1 / 3),
        (traced(fetch=(0, 4), wait=(1, 3), stage="Batch", stood_ms=3), 0),
        (traced(fetch=(0, 4), wait=(1, 3), stage="Prefetch"), 0),  # it hands an element over
        (traced(fetch=(0, 1), wait=(1, 3), stage="Batch"), 0),  # outside of the next()
        (traced(name=FETCH_PYTHON), 1),
    ]
    for row, (trace, share) in enumerate(cases):
        assert pipeline_share(trace) == pytest.approx(share), row


def test_in_a_trace_too_a_ready_element_is_no_wait():
    cases = [("Prefetch", 1, 0.1), ("Prefetch", 0, 0), ("Prefetch", 9, 0.3), ("Batch", 0, 0.3)]
    for stage, stood_ms, share in cases:
        trace = traced(wait=(1, 4), stage=stage, stood_ms=stood_ms)
        assert bound(trace, None) == (pytest.approx(share), Source.TRACE), (stage, stood_ms)


def test_a_next_waits_while_it_stands_still_and_while_stages_run_in_it():
    cases = [(0.0, 0.0, 0.0), (0.004, 0.0, 0.4), (0.004, 0.5, 0.45), (0.0, 1.0, 0.1)]
    for stood_s, pipeline, share in cases:
        found = timed_waits(fetches_of(stood_s), pipeline, runs_on=False).share
        assert found == pytest.approx(share), (stood_s, pipeline)


def test_a_pause_before_a_block_that_waits_to_its_end_belongs_to_wait_and_period():
    late, in_time = 0.000201, 0.0002  # of 10 ms: above 2 %
    pauses = (0.010, 0.0, 0.010, 0.0)
    cases = [
        ((0.004, 0.004, 0.0, 0.0), 0.010),
        ((late, late, 0.0, 0.0), 0.010),
        ((in_time, in_time, 0.0, 0.0), 0.0),
        ((0.004, 0.0, 0.0, 0.0), 0.0),  # only half of the block's steps wait
    ]
    for stood_s, paused in cases:
        fetches = fetches_of(*stood_s, pause_s=pauses)
        share = (sum(stood_s) + paused) / (0.040 + paused)
        assert timed_waits(fetches).share == pytest.approx(share), stood_s
        found = timed_waits(fetches, runs_on=False).share
        assert found == pytest.approx(sum(stood_s) / 0.040), stood_s


def test_blocks_at_the_start_that_step_time_drops_do_not_count():
    fetches = fetches_of(*[0.008] * 16, *[0.0] * 32, pause_s=(0.001, 0.0) * 24)
    assert timed_waits(fetches, runs_on=False).share == pytest.approx(0.8 / 3)
    assert timed_waits(fetches, runs_on=False, n_dropped=8).share == 0
    blocks = tuple((0.100 if n < 8 else 0.010 + 1e-4 * (n * 7 % 16), 2) for n in range(24))
    found = bound(traced(), fetches, blocks=blocks, step_seconds=fetches.call_s)
    assert found == (0, Source.TIMED)


def test_the_share_is_that_of_whole_epochs():
    """The first call of each epoch of three waits for 8 ms."""
    waits = (0.0, 0.0, 0.008, 0.0, 0.0, 0.008, 0.0, 0.0)
    cases = [(None, 16 / 80), (3, 16 / 60), (8, 16 / 80), (9, 16 / 80)]
    for epoch_calls, share in cases:
        found = timed_waits(fetches_of(*waits), runs_on=False, epoch_calls=epoch_calls)
        assert found.share == pytest.approx(share), epoch_calls


def test_a_share_without_the_start_of_an_epoch_is_noted_unless_it_is_large_anyway(monkeypatch):
    def notes(fetches, **recorded):
        recording = replace(RECORDING, fetches=fetches, **recorded)
        found = profile_of(Evidence(recording, traced())).notes
        return [note for note in found if "begins an epoch" in note]

    timed = {"blocks": ((0.04, 4),), "step_seconds": (0.01,) * 4}
    assert notes(WAITS, **timed, epoch_calls=1000) == []
    monkeypatch.setattr(shares, "_WAITS_ANYWAY", 1.0)
    assert notes(WAITS, **timed, epoch_calls=1000) == [
        "input_bound is of 4 steps, none of which begins an epoch (of 1000): the wait for its "
        "first batch is not in it"
    ]
    assert "is of 20 steps" in notes(None, **timed, epoch_calls=30)[0]
    of_unknown_length = notes(WAITS, **timed, epoch_calls=0)
    assert of_unknown_length == [notes(WAITS, **timed, epoch_calls=9)[0].replace(" (of 9)", "")]
    assert notes(WAITS, **timed, epoch_calls=1001) == []
    assert notes(WAITS, **timed) == []
    starts = {"epoch_gaps_s": (0.1,), "epoch_starts": (2,)}
    assert notes(WAITS, **timed, **starts, epoch_calls=30) == []


def test_the_visible_part_of_waits_counts():
    assert timed_waits(fetches_of(0.004), visible=0.5).share == pytest.approx(0.2)


def test_halves_of_a_window():
    found = timed_waits(fetches_of(0.0, 0.0, 0.004, 0.004))
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


WAITS, READY_ONES = fetches_of(*[0.008] * 4), fetches_of(*[0.0] * 4)


def test_the_timed_window_tells_the_share_and_not_the_trace():
    assert bound(traced(), None) == (pytest.approx(0.1), Source.TRACE)
    assert bound(traced(), WAITS) == (pytest.approx(0.8), Source.TIMED)
    assert bound(traced(), READY_ONES) == (0, Source.TIMED)


def test_a_python_iterator_is_waited_for_as_long_as_its_next_takes():
    assert bound(traced(name=FETCH_PYTHON), READY_ONES) == (pytest.approx(0.1), Source.TIMED)


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


LATE = fetches_of(*[0.0] * 30, *[0.008] * 30)


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
        stood_s=(0.0, 0.0, 0.0),
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
        (1.0, (30, 45, 60, 75, 90), 1 - 0.2 * 4 / 6),  # 4 made while 6 were taken
        (1.0, (30.2, 45, 60, 75, 90), 0.8),  # less than two of the buffer
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
        trace = traced(fetch=(0, 5), wait=(1, 5), limit=limit)
        assert settling_steps(trace, before, fetches_of(*[0.0] * 4)) == steps, before
