"""Totals over as many steps as a run had time for, against those of another run of unchanged code."""

from dataclasses import replace

import pytest
from helpers.baselines import update, update_new
from helpers.builders import LAPTOP, profile, record_of, value

from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline
from pytest_tfperf.baseline.store import read_structure
from pytest_tfperf.metrics.timing import timed_values
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Unknown


@pytest.fixture
def place(new_place):
    return new_place()


def total(n_steps, number, metric="retraces"):
    return profile(**{metric: value(metric, number, n_steps=n_steps)})


def found(place, before, now):
    update(place, record_of(before))
    [check] = compare_with_baseline(now, "test_step", Baseline(place), LAPTOP, "structural", None)
    return check


def test_more_in_more_steps_is_undecided_unless_it_was_none_or_is_more_frequent(new_place):
    cases = [
        ((600, 1), (600, 1), "PASS"),
        ((600, 1), (900, 1), "PASS"),
        ((900, 1), (600, 1), "PASS"),
        ((600, 1), (600, 2), "REGRESSION"),
        ((600, 2), (900, 3), "INCONCLUSIVE"),
        ((600, 2), (800, 4), "INCONCLUSIVE"),  # (2 + 1) / 600 of 800
        ((600, 2), (800, 5), "REGRESSION"),
        ((600, 0), (900, 1), "REGRESSION"),
        ((900, 3), (600, 4), "REGRESSION"),
        ((900, 3), (600, 2), "INCONCLUSIVE"),
        ((900, 3), (900, 2), "IMPROVED"),
        ((600, 3), (900, 2), "IMPROVED"),
    ]
    for before, now, verdict in cases:
        for metric in ("retraces", "xla_compiles"):
            check = found(new_place(), total(*before, metric), total(*now, metric))
            assert check.verdict.value == verdict, (before, now, check.message)


def test_an_undecided_total_says_over_how_many_steps(place):
    said = found(place, total(600, 2), total(1000, 3)).message
    assert "retraces is 3 over 1,000 steps, 2 over 600 in the baseline: another number" in said


def test_an_entry_without_steps_is_compared_exactly(place):
    update(place, record_of(total(600, 1)))
    place.detail.unlink()  # it has the steps
    now = total(1000, 2)
    [check] = compare_with_baseline(now, "test_step", Baseline(place), LAPTOP, "structural", None)
    assert check.verdict.value == "REGRESSION"


def test_another_number_of_steps_alone_changes_no_file(place):
    update(place, record_of(total(600, 1)))
    files = place.structure, place.detail
    before = [file.read_bytes() for file in files]
    update(place, record_of(total(700, 1)))
    assert [file.read_bytes() for file in files] == before


def test_the_steps_stay_with_the_totals_that_they_belong_to(place):
    update(place, record_of(total(600, 1)))
    more = profile(
        retraces=value("retraces", 2, n_steps=900),
        eager_ops=value("eager_ops", 3),
    )
    update_new(place, record_of(more))
    entry = read_structure(place.structure)["test_step"]
    assert (entry["counted_steps"], entry["program"]) == (600, {"eager_ops": 3, "retraces": 1})
    update(place, record_of(more))
    entry = read_structure(place.structure)["test_step"]
    assert (entry["counted_steps"], entry["program"]["retraces"]) == (900, 2)


def test_a_total_that_fell_where_functions_had_been_traced_before_is_no_improvement(new_place):
    why = "its functions had been traced before, so this was no first step"
    recording = Recording(name="", trace=None, workload={}, first_step_s=Unknown(why))
    first = timed_values(recording, None)["first_step_time"]
    for number, verdict in ((0, "PASS"), (1, "PASS"), (3, "REGRESSION")):
        now = total(600, number)
        assert found(new_place(), total(600, 2), now).verdict == (
            "IMPROVED" if verdict == "PASS" else verdict
        )
        now = replace(now, metrics={**now.metrics, "first_step_time": first})
        check = found(new_place(), total(600, 2), now)
        assert (check.verdict, check.is_shown_change) == (verdict, verdict == "PASS")
        assert verdict != "PASS" or f"does not gate: {why}" in check.sentence
