"""What users read of remedies that were tried: the best, and what is said where none helps."""

import pytest
from helpers.sample_run import tried

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.remedies.results import Remedies, Tried


def remedies(*found):
    return Remedies(tried=found, unchanged_s=0.08, seconds=41.2)


BOUND = tried("no input at all", 9.6, 9.0, 10.0, is_bound=True, outputs="–")
DIFFERENT = tried("deterministic=False", 4.0, 3.9, 4.1, outputs="step 1 differs by up to 2")
GOOD = tried(".prefetch()", 3.2, 3.0, 3.4, input_share=0.61)
SLOWER = tried("jit_compile=True", 0.5, 0.4, 0.6, outputs="within tolerance")
OPEN = tried("@tf.function", 1.8, 0.9, 2.4)
IDLE = tried("@tf.function", 6.0, 5.9, 6.1, dropped="time.sleep at model.py:7")
FAILED = Tried(remedy="@jax.jit", why="could not be tried: TypeError: no")


def test_the_best_is_no_bound_and_changes_no_outputs():
    assert remedies(BOUND, IDLE, DIFFERENT, GOOD, SLOWER).best is GOOD
    assert remedies(SLOWER).best is SLOWER  # for a limit on what is left on the table
    for one in (BOUND, IDLE, DIFFERENT, FAILED):
        with pytest.raises(UnknownMetric):
            _ = remedies(one).best


def test_the_table_names_speedups_bounds_changed_outputs_and_failures():
    assert str(remedies(BOUND, DIFFERENT, GOOD, FAILED)).splitlines() == [
        "tried here, 41.2 s:",
        "  faster        step   input  outputs    remedy",
        "  9.6x (9–10)   10 ms         –          (bound: no input at all)",
        "  4x (3.9–4.1)  10 ms         different  deterministic=False",
        "  3.2x (3–3.4)  10 ms  61 %   same       .prefetch()",
        "write: model.py:3  .prefetch()",
        "  outputs of deterministic=False differ: step 1 differs by up to 2",
        "  @jax.jit: could not be tried: TypeError: no",
    ]


def test_nothing_helps_is_an_answer_and_not_known_is_another():
    assert "nothing that was tried helps" in str(remedies(BOUND, SLOWER))
    assert "none is known to be faster: the interval of @tf.function holds 1x" in str(
        remedies(OPEN, SLOWER)
    )
    assert "nothing could be measured" in str(remedies(FAILED))


def test_work_of_python_that_is_left_out_is_named_and_nothing_to_type():
    lines = str(remedies(IDLE, SLOWER)).splitlines()
    assert "  nothing that was tried helps" in lines
    named = "@tf.function leaves out what Python does in each step: time.sleep at model.py:7"
    assert f"  {named}" in lines


def test_records_have_numbers_and_none():
    first, last = remedies(GOOD, FAILED).records()
    assert (first["speedup"], first["low"], first["input_share"]) == (3.2, 3.0, 0.61)
    assert (last["speedup"], last["why"]) == (None, "could not be tried: TypeError: no")
