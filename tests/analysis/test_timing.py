import pytest

from pytest_tfperf.analysis.timing import median_precision, timed_values
from pytest_tfperf.recording import Recording


def values(**recorded):
    return timed_values(Recording(name="", trace=None, workload={}, **recorded))


def test_step_time_is_the_median_over_blocks_of_time_by_steps():
    blocks = ((0.020, 2), (0.033, 3), (0.900, 1))
    assert values(blocks=blocks, step_seconds=(0.01,) * 6)["step_time"].number == pytest.approx(0.011)


def test_steps_that_loop_inside_divide_all_times_but_the_first():
    result = values(blocks=((0.4, 20),), step_seconds=(0.01, 0.03), first_step_s=5.0)
    assert result["step_time"].number == pytest.approx(0.02)
    assert result["step_time_p90"].number == pytest.approx(0.03)
    assert result["first_step_time"].number == 5.0


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (9, 9), (10, 9), (11, 10), (20, 18), (21, 19)])
def test_the_90th_percentile_is_the_smallest_that_90_percent_do_not_exceed(n, expected):
    seconds = tuple(float(number) for number in range(1, n + 1))
    assert values(blocks=((1.0, 1),), step_seconds=seconds)["step_time_p90"].number == expected


def test_throughput_is_examples_by_step_time():
    assert values(blocks=((0.02, 2),), step_seconds=(0.01,), examples_per_step=32)["throughput"].number == pytest.approx(3200)
    assert "examples_per_step" in values(blocks=((0.02, 2),), step_seconds=(0.01,))["throughput"].why


def test_what_was_not_timed_is_unknown_with_the_reason():
    assert "nothing was timed" in values()["step_time"].why
    assert values(ended="fit ended after 3 steps")["step_time"].why == "fit ended after 3 steps"
    assert values(first_step_s=1.0, first_step_why="traced before")["first_step_time"].why == "traced before"
    assert values(blocks=((1.0, 1),), step_seconds=(1.0,))["epoch_gap"].why == "no epoch ended in the timed window"


def test_the_gap_between_epochs_is_its_median():
    assert values(blocks=((1.0, 1),), step_seconds=(1.0,), epoch_gaps_s=(0.1, 0.9, 0.2))["epoch_gap"].number == 0.2


def test_precision_narrows_with_the_root_of_the_number_of_blocks():
    assert median_precision([1.0, 2.0]) is None
    assert median_precision([5.0] * 9) == 0
    few = [9.0, 10.0, 11.0] * 3
    assert median_precision(few) / median_precision(few * 4) == pytest.approx(2)
    # median 10, MAD 1: 1.96 × 1.2533 × 1.4826 / 3 / 10
    assert median_precision(few) == pytest.approx(0.12140, rel=1e-3)
