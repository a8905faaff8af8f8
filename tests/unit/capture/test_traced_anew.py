"""When windows end since each step is traced again."""

import math

import pytest

from pytest_tfperf.capture.windows import TracedAnew
from pytest_tfperf.function_traces import (
    DTYPE,
    FIRST,
    NEW_FUNCTION,
    UNKNOWN,
    VALUE,
    WEAK_TYPE,
    Change,
)
from pytest_tfperf.function_traces import SHAPE as OF_SHAPE

RATE, SHAPE = Change(VALUE, "rate 0.1 → 0.2"), Change(OF_SHAPE, "x float32[8,3] → float32[5,3]")
OTHERS = [Change(kind, "") for kind in (WEAK_TYPE, DTYPE, NEW_FUNCTION, UNKNOWN)]


def ended(changes, *limits, compiles=False, name="step", warmup=0):
    """The step after which the windows end, and why; changes are of the steps from the second on."""
    anew = TracedAnew(warmup, *limits)
    anew.end_step(1)
    for n_steps, change in enumerate(changes, 2):
        if change is not None:
            anew.traced(name, [change])
        if compiles:
            anew.compiled()
        if why := anew.end_step(n_steps):
            return n_steps, why
    return None


@pytest.mark.parametrize("change", [RATE, *OTHERS])
def test_five_steps_in_a_row_end_the_windows(change):
    assert ended([change] * 9) == (6, "stopped after 6 steps, each traced again")
    assert ended([change] * 4) is None
    late = ended([None, change, None, *[change] * 9])
    assert late == (9, "stopped after 9 steps, the last 5 of which were traced again")


def test_traces_of_the_warm_up_alone_end_nothing():
    assert ended([*[RATE] * 9, None, None], warmup=10) is None
    late = ended([RATE] * 15, warmup=10)
    assert late == (11, "stopped after 11 steps, each traced again")


def test_a_limit_that_more_traces_would_break_is_broken_first():
    assert ended([RATE] * 9, 10.0, warmup=3) is None
    assert ended([RATE] * 15, 10.0, warmup=3)[0] == 12
    assert ended([RATE] * 15, 2.0, warmup=10)[0] == 6


def test_new_shapes_explain_traces_unless_a_limit_forbids_them():
    cases = [
        ((), None),
        ((0.0,), 6),
        ((4.0,), 6),
        ((5.0,), 7),  # the sixth trace is the first that the limit forbids
        ((math.inf, 4.0), 6),
        ((math.inf, 5.0), 7),
    ]
    for limits, step in cases:
        found = ended([SHAPE] * 9, *limits, compiles=True)
        assert (found and found[0]) == step, limits
    assert ended([RATE, RATE, SHAPE, RATE, RATE, RATE, RATE]) is None


def test_new_pipelines_explain_traces_unless_a_limit_forbids_them():
    assert ended([RATE] * 9, name="Dataset_map_grab_batch") is None
    assert ended([RATE] * 9, 0.0, name="Dataset_map_grab_batch")[0] == 6


def test_first_traces_of_functions_are_none_anew():
    first = Change(FIRST, "for the first time")
    assert ended([first] * 9) is None
    assert ended([first] * 9, 0.0) is None
