import numpy as np
import pytest

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.timing import (
    analyse,
    block_seconds,
    median_precision,
    timed_values,
    timing_notes,
)
from pytest_tfperf.recording import BetweenEpochs, Recording
from pytest_tfperf.values import Unknown


def values(**recorded):
    recording = Recording(name="", trace=None, workload={}, **recorded)
    return timed_values(recording, recording.examples_per_step)


def test_step_time_is_the_median_over_blocks_of_time_by_steps():
    blocks = ((0.020, 2), (0.033, 3), (0.900, 1))
    assert values(blocks=blocks, step_seconds=(0.01,) * 6)["step_time"].number == pytest.approx(
        0.011
    )


def test_interference_stands_with_the_step_time_and_nowhere_else():
    remarks = ("other processes used 83%", "the load average was 9")
    found = values(blocks=((0.02, 2),), step_seconds=(0.01,) * 2, interference=remarks)
    assert found["step_time"].detail["interference"] == list(remarks)
    quiet = values(blocks=((0.02, 2),), step_seconds=(0.01,) * 2)
    assert "interference" not in quiet["step_time"].detail
    assert values(interference=remarks)["step_time"].number is None


def test_processor_time_is_the_median_over_steady_blocks_of_processor_time_by_steps():
    seconds = SLOW_START
    cpu = (9.0, 9.0, 9.0, 0.3, 0.32, 0.34, 0.36, 0.38, 0.40, 0.42)
    found = values(
        blocks=blocks(*seconds), step_seconds=(0.1,) * 20, block_cpu_s=cpu, other_load=0.25
    )
    assert found["step_cpu_time"].number == pytest.approx(0.18)  # of the last seven, two steps each
    assert found["other_load"].number == 0.25


def test_processor_time_is_unknown_where_it_is_no_measure_of_work():
    both = {"blocks": ((0.2, 2),), "step_seconds": (0.1,) * 2}
    for cpu, known in [((0.0201,), True), ((0.0199,), False)]:  # a tenth of the step
        found = values(**both, block_cpu_s=cpu)["step_cpu_time"]
        assert (found.number is not None) is known, cpu
        assert known or found.why.startswith("the step waits: it computes for 9.95 % of its time")
    for spread, known in [(0.99, True), (1.01, False)]:  # quartiles apart by as much as the median
        cpu = (0.2, 0.2, 0.2, 0.2 + 0.2 * spread, 0.9)
        both = {"blocks": ((0.2, 2),) * 5, "step_seconds": (0.1,) * 10}
        found = values(**both, block_cpu_s=cpu)["step_cpu_time"]
        assert (found.number is not None) is known, spread
        assert known or "threads that spin" in found.why
    found = values(**both, block_cpu_s=Unknown("the clock is coarse"))
    assert (found["step_cpu_time"].number, found["step_cpu_time"].why) == (
        None,
        "the clock is coarse",
    )
    assert found["other_load"].number is None
    assert values(**both)["step_cpu_time"].why == "the processor time of the steps was not measured"


def test_the_seconds_of_a_step_are_told_block_by_block():
    assert block_seconds(
        Recording(name="", trace=None, workload={}, blocks=((0.5, 2), (0.75, 3)))
    ) == (0.25, 0.25)


def test_steps_that_loop_inside_divide_all_times_but_the_first():
    result = values(blocks=((0.4, 20),), step_seconds=(0.01, 0.03), first_step_s=5.0)
    assert result["step_time"].number == pytest.approx(0.02)
    assert result["step_time_p90"].number == pytest.approx(0.03)
    assert result["first_step_time"].number == 5.0


def blocks(*seconds):
    """Blocks of two steps, of which one takes so long."""
    return tuple((2 * each, 2) for each in seconds)


SLOW_START = (0.9, 0.8, 0.7, 0.104, 0.101, 0.103, 0.102, 0.106, 0.105, 0.1)


def test_a_slow_start_counts_in_no_metric_and_is_said():
    each = tuple(seconds for seconds in SLOW_START for _ in range(2))
    found = values(blocks=blocks(*SLOW_START), step_seconds=each, examples_per_step=1)
    assert found["step_time"].number == pytest.approx(0.103)  # the median of the last seven
    assert found["step_time"].detail["n_dropped"] == 3
    assert found["step_time"].detail["n_blocks"] == 10
    assert found["step_time"].detail["n_steps"] == 14
    assert found["step_time_p90"].number == 0.106
    assert found["step_time_p90"].detail["n_steps"] == 14
    assert found["throughput"].number == pytest.approx(1 / 0.103)


def test_the_first_block_that_many_calls_are_in_leaves_a_call():
    uneven = ((90.0, 100), (80.0, 100), (70.0, 100), *blocks(*SLOW_START[3:]))
    assert values(blocks=uneven, step_seconds=(0.1,) * 4)["step_time_p90"].detail["n_steps"] == 1


def noted(*seconds, **recorded):
    return timing_notes(
        Recording(name="", trace=None, workload={}, blocks=blocks(*seconds), **recorded)
    )


def test_steps_that_never_get_steady_are_said_with_what_to_do():
    (note,) = noted(*(0.110 - 0.001 * i for i in range(21)))
    assert (
        note
        == "step_time is not steady: over 21 blocks it fell by 20 % (1 % a block): give it more warm-up (warmup=)"
    )
    (note,) = noted(*(0.090 + 0.001 * i for i in range(21)))
    assert note == (
        "step_time is not steady: over 21 blocks it rose by 20 % (1 % a block): "
        "the machine slows down (heat, a CPU quota, other load), or what the step works on grows"
    )
    assert noted(0.1, *(0.1 + 0.001 * (i % 2) for i in range(20))) == ()
    (note,) = noted(*(0.090 + 0.001 * i for i in range(21)), settled=False)
    assert "draining" in note
    assert noted() == ()


def test_blocks_that_do_not_count_are_said_with_the_values_that_they_are_left_out_of():
    recorded = {"blocks": blocks(*SLOW_START), "step_seconds": tuple(np.repeat(SLOW_START, 2))}
    found = analyse(Evidence(Recording(name="", trace=None, workload={}, **recorded)))
    for name, value in found.values.items():
        said = [note for note in value.notes if "do not count" in note]
        assert bool(said) == (name in ("step_time", "step_time_p90")), name
    assert noted(*SLOW_START[4:]) == ()


def test_the_90th_percentile_is_the_smallest_that_90_percent_do_not_exceed():
    for n, expected in [(1, 1), (9, 9), (10, 9), (11, 10), (20, 18), (21, 19)]:
        seconds = tuple(float(number) for number in range(1, n + 1))
        assert (
            values(blocks=((1.0, 1),), step_seconds=seconds)["step_time_p90"].number == expected
        ), n


def test_the_99th_percentile_is_the_smallest_that_99_percent_do_not_exceed():
    for n, expected in [(300, 297), (301, 298), (1000, 990)]:
        seconds = tuple(float(number) for number in range(1, n + 1))
        found = values(blocks=((1.0, 1),), step_seconds=seconds)["step_time_p99"]
        assert (found.number, found.detail["n_steps"]) == (expected, n), n


@pytest.mark.parametrize(("n", "were"), [(1, "1 single step was"), (299, "299 single steps were")])
def test_the_99th_percentile_is_unknown_under_300_steps(n, were):
    found = values(blocks=((0.1, 1),), step_seconds=(0.1,) * n)["step_time_p99"]
    assert found.number is None
    assert (
        found.why
        == f"{were} timed, and the 99th percentile needs 300: steps=400, with data or epochs for them"
    )


def test_percentiles_are_unknown_where_calls_only_enqueue_steps():
    """A block waits for its devices at its end."""
    for single, known in [(0.9, True), (0.899, False), (0.001, False)]:
        found = values(blocks=((300.0, 300),), step_seconds=(single,) * 300)
        for name in ("step_time_p90", "step_time_p99"):
            assert (found[name].number == single) is known, single
            assert known or "latency=True waits for each" in found[name].why, single
        assert found["step_time"].number == 1.0, single


def test_percentiles_are_known_where_few_blocks_end_late():
    """Another process held up the synchronisation of every third block."""
    late = tuple((30.0 if n % 3 else 45.0, 30) for n in range(10))
    assert values(blocks=late, step_seconds=(1.0,) * 300)["step_time_p99"].number == 1.0
    enqueued = (1.0,) * 120 + (0.001,) * 180
    assert values(blocks=((30.0, 30),) * 10, step_seconds=enqueued)["step_time_p99"].number is None


def test_the_99th_percentile_counts_no_slow_start():
    each = tuple(seconds for seconds in SLOW_START for _ in range(40))
    found = values(blocks=blocks(*SLOW_START), step_seconds=each)["step_time_p99"]
    assert found.why.startswith("280 single steps were timed")
    assert values()["step_time_p99"].why == values()["step_time_p90"].why


def test_throughput_is_what_a_user_counts():
    """32 examples a step: steps of 10 ms, of which each tenth takes 110 ms, and gaps of 50 ms."""
    ten = {"blocks": ((0.2, 10),) * 6, "step_seconds": (0.11, *[0.01] * 9) * 6}
    gaps = {"epoch_gaps_s": (0.05,) * 5, "epoch_starts": (10, 20, 30, 40, 50)}
    cases = [
        (ten, 32 * 60 / 1.2),
        (ten | gaps, 32 * 60 / (1.2 + 0.25)),
        (ten | gaps | {"epoch_calls": 10}, 32 * 10 / (0.2 + 0.05)),
        # calls of two steps each
        (ten | gaps | {"epoch_calls": 10, "blocks": ((0.2, 20),) * 6}, 32 * 20 / (0.2 + 0.05)),
    ]
    for row, (recorded, examples) in enumerate(cases):
        found = values(**recorded, examples_per_step=32)["throughput"]
        assert found.number == pytest.approx(examples), row
    assert "examples_per_step" in values(**ten)["throughput"].why


def test_throughput_leaves_out_blocks_of_a_slow_start_and_their_gaps():
    each = tuple(seconds for seconds in SLOW_START for _ in range(2))
    recorded = {"blocks": blocks(*SLOW_START), "step_seconds": each, "examples_per_step": 1}
    gaps = {"epoch_gaps_s": (9.0, 0.1), "epoch_starts": (5, 6)}  # three blocks of two calls go
    steady = 2 * sum(SLOW_START[3:])
    assert values(**recorded, **gaps)["throughput"].number == pytest.approx(14 / (steady + 0.1))


def test_rare_long_steps_are_said_with_their_place():
    def note(calls, starts=(), per_block=5):
        each = [calls[n : n + per_block] for n in range(0, len(calls), per_block)]
        blocks = tuple((sum(block), len(block)) for block in each)
        recorded = {"blocks": blocks, "step_seconds": tuple(calls), "epoch_starts": starts}
        found = timing_notes(Recording(name="", trace=None, workload={}, **recorded))
        return [text for text in found if "mean" in text]

    even, rare = [0.01] * 50, [0.01] * 50
    rare[7] = rare[31] = 0.25
    assert note(even) == []
    assert note([*[0.01] * 49, 0.01 + 0.124]) == []  # 1.248 times the median
    (said,) = note(rare)
    assert said == (
        "the mean of the timed steps is 19.6 ms, 2.0 times their median (10 ms), which step_time "
        "is: 2 of 50 steps take more than twice as long, up to 250 ms"
    )
    (said,) = note(rare, starts=(7, 31))
    assert said.endswith("which step_time is: the first step of each epoch takes 250 ms")
    (said,) = note(rare, starts=(8, 32))
    assert "2 of 50 steps" in said


def test_what_was_not_timed_is_unknown_with_the_reason():
    assert "nothing was timed" in values()["step_time"].why
    assert values(ended="fit ended after 3 steps")["step_time"].why == "fit ended after 3 steps"
    assert values(first_step_s=Unknown("traced before"))["first_step_time"].why == "traced before"
    assert (
        values(blocks=((1.0, 1),), step_seconds=(1.0,))["epoch_gap"].why
        == "no epoch ended in the timed window"
    )


def test_the_gap_between_epochs_is_its_median():
    assert (
        values(blocks=((1.0, 1),), step_seconds=(1.0,), epoch_gaps_s=(0.1, 0.9, 0.2))[
            "epoch_gap"
        ].number
        == 0.2
    )


GAPS = {"blocks": ((2.0, 10), (2.0, 10)), "step_seconds": (0.2,) * 20}


def test_an_iter_that_takes_more_than_half_of_the_gaps_is_named():
    gaps = {**GAPS, "epoch_gaps_s": (0.4, 0.4, 6.0)}
    detail = values(**gaps, epoch_iters_s=(0.1, 0.3, 3.01))["epoch_gap"].detail
    assert detail["iter_s"] == 0.3
    assert (
        detail["where"]
        == "freeing the iterator of an epoch and iter() of the data take 300 ms of it"
    )
    assert "one iter() serves all epochs" in detail["try"]
    detail = values(**gaps, epoch_iters_s=(0.1, 0.3, 3.0))["epoch_gap"].detail
    assert detail == {"n_gaps": 3}


def test_what_keras_runs_in_the_median_gap_is_named():
    def cause(**seconds):
        work = {BetweenEpochs(name.replace("_", ".", 1)): each for name, each in seconds.items()}
        gaps = {**GAPS, "epoch_gaps_s": (0.4, 0.4, 6.0), "epoch_work_s": work}
        return values(**gaps)["epoch_gap"].detail

    found = cause(Score_on_epoch_end=(0.3, 0.2, 0.1), Log_on_epoch_end=(0.05, 0.05, 5.0))
    assert found["where"] == (
        "Keras callback Score.on_epoch_end takes 200 ms, Keras callback Log.on_epoch_end takes "
        "50 ms: 62.5 % of it"
    )
    assert found["accounted"] == pytest.approx(0.625)
    for few in ((0.0, 0.0, 5.0), (0.059, 0.059, 5.0)):  # in few epochs, or little of the gap
        assert cause(Score_on_epoch_end=few) == {"n_gaps": 3}


def test_gaps_of_a_fifth_of_the_window_are_noted():
    assert noted(1.0, 1.0, epoch_gaps_s=(0.4, 0.599)) == ()
    (note,) = noted(1.0, 1.0, epoch_gaps_s=(0.4, 0.6), epoch_iters_s=(0.45, 0.45))
    assert note.startswith(
        "20 % of the timed window passed between epochs, which step_time leaves out: epoch_gap is "
        "500 ms; freeing the iterator of an epoch and iter() of the data take 450 ms of it; repeat() the dataset"
    )
    (note,) = noted(1.0, 1.0, epoch_gaps_s=(0.4, 0.4, 0.8))
    assert note.endswith("leaves out: epoch_gap is 400 ms")
    (note,) = noted(1.0, 1.0, epoch_gaps_s=(0.4, 0.4, 0.81))
    assert note.endswith("leaves out: epoch_gap is 400 ms, and the longest of 3 took 810 ms")
    (note,) = noted(1.0, 1.0, epoch_gaps_s=(0.4, 0.6))
    assert note.endswith("leaves out: epoch_gap is 500 ms")
    assert noted(epoch_gaps_s=(0.4,)) == ()  # nothing was timed


def test_precision_narrows_with_the_root_of_the_number_of_blocks():
    assert median_precision([1.0, 2.0]) is None
    assert median_precision([5.0] * 9) == 0
    few = [9.0, 10.0, 11.0] * 3
    assert median_precision(few) / median_precision(few * 4) == pytest.approx(2)
    # median 10, MAD 1: 1.96 × 1.2533 × 1.4826 / 3 / 10
    assert median_precision(few) == pytest.approx(0.12140, rel=1e-3)
