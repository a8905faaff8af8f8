"""Cutting a plan to the available steps."""

import pytest

from pytest_tfperf.capture.plan import Plan


@pytest.mark.parametrize("available", [82, 100, 10**6])
def test_plan_that_fits_is_unchanged(available):
    plan = Plan().cut_to(available)
    assert (plan.warmup, plan.timed_steps, plan.trace_steps, plan.available) == (
        10,
        50,
        20,
        available,
    )


@pytest.mark.parametrize("available", [5, 6, 8, 13, 32, 50, 81])
def test_plan_that_does_not_fit_uses_all_available_steps(available):
    plan = Plan().cut_to(available)
    assert plan.total == available
    assert plan.trace_steps >= 2
    assert plan.timed_steps >= 1


def test_cut_plan_keeps_the_proportions_of_windows():
    plan = Plan().cut_to(42)
    assert (plan.warmup, plan.timed_steps, plan.trace_steps) == (5, 25, 10)
