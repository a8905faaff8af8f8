"""What users read of remedies that were tried: the best, and what is said where none helps."""

from dataclasses import replace

import pytest
from helpers.sample_run import tried

from pytest_tfperf.advice.changes import CHANGES, changes_in
from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.remedies.results import Remedies, Tried
from pytest_tfperf.remedies.trial import REMEDIES
from pytest_tfperf.values import Advice


def remedies(*found):
    return Remedies(tried=found, unchanged_s=0.08, seconds=41.2)


BOUND = tried("no input at all", 1263.7, 964.6, 1620.2, is_bound=True, outputs="–")
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
    late = Tried(remedy=".cache()", why="no time was left")
    again = replace(FAILED, remedy="jit_compile=True")
    assert str(remedies(BOUND, DIFFERENT, GOOD, FAILED, late, again)).splitlines() == [
        "tried here, 41.2 s:",
        "  faster              step   input  outputs    remedy",
        "  1,264x (965–1,620)  10 ms         –          (bound: no input at all)",
        "  4x (3.9–4.1)        10 ms         different  deterministic=False",
        "  3.2x (3–3.4)        10 ms  61 %   same       .prefetch()",
        "write: model.py:3  .prefetch()",
        "  outputs of deterministic=False differ: step 1 differs by up to 2",
        "  @jax.jit; jit_compile=True: could not be tried: TypeError: no",
        "  .cache(): no time was left",
    ]


def test_nothing_helps_is_an_answer_and_not_known_is_another():
    assert "nothing that was tried helps" in str(remedies(BOUND, SLOWER))
    assert "none is known to be faster: @tf.function may be 2.4x as fast; try again" in str(
        remedies(OPEN, SLOWER)
    )
    wide = tried("jit_compile=True", 0.81, 0.49, 1.76)
    assert "jit_compile=True may be 1.76x as fast" in str(remedies(wide))
    assert "nothing that was tried helps" in str(remedies(tried("x", 1.0, 0.97, 1.02)))
    assert "nothing was measured" in str(remedies(FAILED))


def test_work_of_python_that_is_left_out_is_named_and_nothing_to_type():
    lines = str(remedies(IDLE, SLOWER)).splitlines()
    assert "  nothing that keeps the outputs and does the same work helps" in lines
    named = "@tf.function leaves out what Python does in each step: time.sleep at model.py:7"
    assert f"  {named}" in lines


def test_records_have_numbers_and_none():
    first, last = remedies(GOOD, FAILED).records()
    assert (first["speedup"], first["low"], first["input_share"]) == (3.2, 3.0, 0.61)
    assert (last["speedup"], last["why"]) == (None, "could not be tried: TypeError: no")


def test_advice_that_was_tried_tells_what_it_gave_and_is_ordered_by_it():
    def advised(what):
        return Advice(what=what, because="60 % waits", win_s=0.01, look="stages")

    found = remedies(
        BOUND,
        tried("num_parallel_calls=tf.data.AUTOTUNE", 4.0, 3.8, 4.2),
        IDLE,
        tried(".prefetch(tf.data.AUTOTUNE)", 1.2, 1.1, 1.3),
        SLOWER,
    ).ordered(
        [
            advised("compile with jit_compile=True"),
            advised("a larger batch"),
            advised("put the step into one tf.function"),
            advised("end the pipeline with prefetch(tf.data.AUTOTUNE)"),
            advised("map(..., num_parallel_calls=tf.data.AUTOTUNE)"),
        ]
    )
    assert [one.what.split()[0] for one in found] == ["map(...,", "end", "a", "put", "compile"]
    assert found[0].because == "tried here: 4x (3.8–4.2); 60 % waits"
    assert found[2].because == "60 % waits"
    assert found[3].because.startswith("tried here: 6x (5.9–6.1), but no remedy; ")


def test_each_change_that_advice_names_is_one_that_a_remedy_tries():
    named = {change for one in REMEDIES for change in changes_in(one.name)}
    assert named == set(CHANGES)
