"""Totals over as many steps as a run had time for, against those of another run of unchanged code."""

import json
from dataclasses import replace

import pytest
from helpers.baselines import update, update_new
from helpers.builders import LAPTOP, profile, record_of, value

from pytest_tfperf.baseline.compare import compare_with_baseline
from pytest_tfperf.metrics.timing import timed_values
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Unknown


@pytest.fixture
def place(new_place):
    return new_place()


def total(n_steps, *at_steps, metric="retraces", known=True):
    """A profile of `n_steps` with a total of the events in these steps."""
    steps = {"at_steps": list(at_steps)} if known and at_steps else {}
    return profile(**{metric: value(metric, len(at_steps), n_steps=n_steps, **steps)})


def found(place, before, now):
    update(place, record_of(before))
    [check] = compare_with_baseline(now, "test_step", place, LAPTOP, "structural", None)
    return check


def test_a_total_is_compared_over_the_steps_that_both_ran(new_place):
    cases = [
        ((600, 500), (600, 500), "PASS", "retraces is 1, as in the baseline"),
        ((600, 500), (600, 400, 500), "REGRESSION", "retraces rose from 1 to 2"),
        (
            (600, 500),
            (1000, 500, 1000),
            "PASS",
            "retraces is 2 over 1,000 steps, 1 over 600 in the baseline; "
            "in the first 600 they are 1 and 1",
        ),
        (
            (600, 500),
            (1000, 500, 600, 700),
            "REGRESSION",
            "rose from 1 to 2 over the first 600 steps",
        ),
        ((600, 500), (1000, 500, 601), "PASS", "retraces is 2 over 1,000 steps"),
        ((600,), (700, 650), "PASS", "in the first 600 they are 0 and 0"),
        ((600,), (700, 500, 650), "REGRESSION", "retraces rose from 0 to 1"),
        (
            (1000, 500, 1000),
            (600, 500),
            "PASS",
            "2 over 1,000 in the baseline; in the first 600 they are 1 and 1",
        ),
        ((1000, 500), (600, 400, 500), "REGRESSION", "retraces rose from 1 to 2"),
        ((600, 400, 500), (1000, 900), "IMPROVED", "retraces fell from 2 to 1"),
        (
            (6_000, *range(200, 6_001, 200)),
            (600, *range(20, 601, 20)),
            "REGRESSION",
            "retraces rose from 3 to 30 over the first 600 steps",
        ),
        ((600, 500), (900, 500), "PASS", "retraces is 1, as in the baseline"),
        ((900, 500), (600, 500), "PASS", "in the first 600 they are 1 and 1"),
        (  # ten times as often, and fewer in all, since a trace takes time
            (30_000, *range(100, 30_001, 100)),
            (2_000, *range(10, 2_001, 10)),
            "REGRESSION",
            "retraces rose from 20 to 200 over the first 2,000 steps",
        ),
        (  # the file has the first 50
            (30_000, *range(100, 30_001, 100)),
            (29_000, *range(100, 29_001, 100)),
            "PASS",
            "retraces is 290 over 29,000 steps, 300 over 30,000 in the baseline",
        ),
        (
            (30_000, *range(100, 30_001, 100)),
            (29_000, *range(100, 6_000, 100), *range(6_000, 15_500, 40)),
            "INCONCLUSIVE",
            "retraces is 297 over 29,000 steps, 300 over 30,000",
        ),
    ]
    for before, now, verdict, sentence in cases:
        place = new_place()
        check = found(place, total(*before), total(*now))
        assert (check.verdict.value, sentence in check.message) == (verdict, True), check.message


def test_without_the_steps_only_a_higher_rate_is_worse(new_place):
    cases = [
        ((600, 1, 2), (900, 1, 2, 3), "INCONCLUSIVE"),
        ((600, 1, 2), (800, 1, 2, 3, 4), "INCONCLUSIVE"),  # (2 + 1) / 600 of 800
        ((600, 1, 2), (800, 1, 2, 3, 4, 5), "REGRESSION"),
        ((600,), (900, 1), "REGRESSION"),
        ((900, 1, 2, 3), (600, 1, 2), "INCONCLUSIVE"),
        ((900, 1, 2, 3), (600, 1, 2, 3, 4), "REGRESSION"),
    ]
    for before, now, verdict in cases:
        place = new_place()
        sides = (total(*one, metric="xla_compiles", known=False) for one in (before, now))
        check = found(place, *sides)
        assert check.verdict.value == verdict, (before, now)
        assert ("not all that count are known" in check.message) == (verdict == "INCONCLUSIVE"), (
            before,
            now,
        )


def test_an_entry_of_an_older_version_has_no_steps_and_is_compared_exactly(place):
    update(place, record_of(total(600, 500)))
    stored = json.loads(place.structure.read_text())
    del stored["tests"]["test_step"]["counted_steps"]
    place.structure.write_text(json.dumps(stored))
    now = total(1000, 500, 1000)
    [check] = compare_with_baseline(now, "test_step", place, LAPTOP, "structural", None)
    assert check.verdict.value == "REGRESSION"


def test_another_number_of_steps_alone_changes_no_file(place):
    update(place, record_of(total(600, 500)))
    before = place.structure.read_bytes()
    update(place, record_of(total(700, 500)))
    assert place.structure.read_bytes() == before


def test_the_steps_stay_with_the_totals_that_they_belong_to(place):
    update(place, record_of(total(600, 500)))
    more = profile(
        retraces=value("retraces", 2, n_steps=900, at_steps=[500, 900]),
        eager_ops=value("eager_ops", 3),
    )
    update_new(place, record_of(more))
    entry = json.loads(place.structure.read_text())["tests"]["test_step"]
    assert (entry["counted_steps"], entry["program"]) == (600, {"eager_ops": 3, "retraces": 1})
    update(place, record_of(more))
    entry = json.loads(place.structure.read_text())["tests"]["test_step"]
    assert (entry["counted_steps"], entry["program"]["retraces"]) == (900, 2)


def test_a_total_that_fell_where_functions_had_been_traced_before_is_no_improvement(new_place):
    why = "its functions had been traced before, so this was no first step"
    recording = Recording(name="", trace=None, workload={}, first_step_s=Unknown(why))
    first = timed_values(recording, None)["first_step_time"]
    for at_steps, verdict in (((), "PASS"), ((3,), "PASS"), ((3, 4, 5), "REGRESSION")):
        now = total(600, *at_steps)
        assert found(new_place(), total(600, 3, 4), now).verdict == (
            "IMPROVED" if verdict == "PASS" else verdict
        )
        now = replace(now, metrics={**now.metrics, "first_step_time": first})
        check = found(new_place(), total(600, 3, 4), now)
        assert (check.verdict, check.is_shown_change) == (verdict, verdict == "PASS")
        assert verdict != "PASS" or f"does not gate: {why}" in check.sentence
