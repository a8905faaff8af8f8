"""Metrics as typed attributes of a profile."""

from dataclasses import replace
from typing import get_type_hints

import pytest
from helpers.builders import profile

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Source, Value


def test_type_checkers_know_every_metric_as_the_registry_has_it():
    hints = get_type_hints(Profile)
    assert {name: hints.get(name) for name in METRICS} == {
        name: int if metric.unit == COUNT else float for name, metric in METRICS.items()
    }


def test_dir_lists_built_in_and_custom_metrics():
    custom = Value(number=3.0, unit="count", source=Source.OWN)
    made = replace(profile(step_time=0.1), metrics={"tokens": custom})
    assert {"tokens", "step_time", "retraces", "value", "notes"} <= set(dir(made))
    assert made.tokens == 3
    assert isinstance(made.tokens, int)


def test_a_metric_that_an_old_run_file_lacks_is_no_attribute():
    with pytest.raises(AttributeError, match=r"a profile has no 'step_time'; valid: retraces"):
        _ = replace(
            profile(), metrics={"retraces": Value.unknown("retraces", "not traced")}
        ).step_time
