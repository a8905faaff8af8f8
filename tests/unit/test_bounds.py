"""Limits on values of which only bounds are known."""

import pytest

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.errors import LimitError
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.values import Source, Value


def verdict(argument, bound, low, high, **detail):
    detail = {
        "low": low,
        "high": high,
        "bounds": "nobody knows",
        "tpu": "v5e",
        "padding": "predicted",
        "try": "more",
    } | detail
    value = Value.of("padding_overhead", low, Source.PREDICTED, **detail)
    (check,) = check_limits(
        Profile(name="", metrics={"padding_overhead": value}),
        Wanted.read({argument: bound}).limits,
        None,
        False,
    )
    return check


def test_what_no_value_within_the_bounds_breaks_passes_and_what_all_break_fails():
    for argument, bound, expected in [
        ("max_padding_overhead", 0.5, Verdict.PASS),  # the upper bound holds
        ("max_padding_overhead", 0.49, Verdict.UNKNOWN),
        ("max_padding_overhead", 0.1, Verdict.UNKNOWN),  # the lower one does
        ("max_padding_overhead", 0.09, Verdict.FAIL),
        ("min_padding_overhead", 0.1, Verdict.PASS),
        ("min_padding_overhead", 0.11, Verdict.UNKNOWN),
        ("min_padding_overhead", 0.5, Verdict.UNKNOWN),
        ("min_padding_overhead", 0.51, Verdict.FAIL),
    ]:
        assert verdict(argument, bound, 0.1, 0.5).verdict is expected, (argument, bound)


@pytest.mark.parametrize("bound", [0.1, 0.3, 0.49])
def test_steps_that_differ_must_all_hold(bound):
    assert verdict("max_padding_overhead", bound, 0.1, 0.5, bounds=None).verdict is Verdict.FAIL


def test_the_message_names_the_bounds_the_generation_and_what_to_try():
    first, second = verdict("max_padding_overhead", "20%", 0.1, 0.5).message.splitlines()
    assert first == (
        "padding_overhead is between 10 % and 50 % on a TPU v5e (predicted; nobody knows), limit 20 % "
        "(max_padding_overhead='20%')"
    )
    assert second == "  try: more"
    assert (
        "is 10 % on a TPU v5e (predicted), above"
        in verdict("max_padding_overhead", "5%", 0.1, 0.1).message
    )


@pytest.mark.parametrize("bounds", ["nobody knows", None])
def test_bounds_that_are_written_alike_are_one_number(bounds):
    check = verdict("max_padding_overhead", "5%", 0.1, 0.1000001, bounds=bounds)
    assert check.message.startswith("padding_overhead is 10 % o")
    assert " to " not in check.message
    assert "between" not in check.message


def test_a_generation_is_one_that_there_is():
    assert Wanted.read({"tpu": "v6e"}).tpu == "v6e"
    for wrong, says in (("v6", "did you mean 'v6e'"), (6, "is not a string")):
        with pytest.raises(LimitError, match=f"tpu: .*{says}"):
            Wanted.read({"tpu": wrong})
