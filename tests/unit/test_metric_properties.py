"""Metrics as typed attributes of a profile."""

import importlib.util
from dataclasses import replace

import pytest
from helpers.builders import profile
from helpers.paths import ROOT

from pytest_tfperf.values import Source, Value


def test_every_metric_is_a_typed_property_as_the_registry_says():
    spec = importlib.util.spec_from_file_location(
        "generate_properties", ROOT / "docs" / "generate_properties.py"
    )
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.TARGET.read_text(encoding="utf-8") == generate.module()


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
