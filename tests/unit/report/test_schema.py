"""The published JSON Schema of run files: it is one, what is written keeps to it, and it says all that the code does."""

import json
from dataclasses import replace

import pytest
from helpers.builders import profile, record_of
from helpers.paths import ROOT
from helpers.sample_run import a_run

from pytest_tfperf.metric_registry import PLATFORM, PROGRAM, Metric
from pytest_tfperf.quantities import UNITS
from pytest_tfperf.results import FORMAT
from pytest_tfperf.runs import Run
from pytest_tfperf.values import PARTS, REMEDIES, Source, Value

SCHEMA = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))
OWN = Metric("padding_rows", "count", "lower", PROGRAM, "rows that are padding")


def own_run():
    """A run whose profile has a metric of the project's own."""
    made = replace(
        profile(),
        own={OWN.name: OWN},
        metrics={OWN.name: Value(number=3.0, unit="count", source=Source.OWN)},
    )
    return Run(created="2026-01-31T12:00:00+00:00", tests=(record_of(made),))


def names(key):
    return set(SCHEMA["$defs"][key]["properties"])


def choices(key, name):
    return SCHEMA["$defs"][key]["properties"][name]["enum"]


@pytest.fixture
def validator():
    import jsonschema

    return jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.full  # needs jsonschema
def test_the_schema_is_valid(validator):
    validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.full
def test_run_files_match_the_schema(validator):
    for run in [
        a_run(),
        own_run(),
        Run(created="now", tests=()),
        Run(created="now", tests=(record_of(environment={}),)),
    ]:
        validator.validate(json.loads(json.dumps(run.to_json(), allow_nan=False)))


def test_what_is_written_is_described():
    run = a_run()
    assert set(run.to_json()) | {"not_checked"} == set(SCHEMA["properties"])
    for test in run.tests:
        assert set(test.to_json()) == names("ProfiledTest")
        assert all(set(one.to_json()) == names("Profile") for one in test.profiles)
        assert all(set(one.to_json()) | {"follows"} == names("Check") for one in test.checks)
        assert all(set(check.detail) <= names("Comparison") for check in test.checks)
    [record, *_] = run.tests[0].profiles[0].tables[REMEDIES].records()
    assert set(record) == names("RemedyRecord")
    assert all(
        "description" in one for one in SCHEMA["$defs"]["RemedyRecord"]["properties"].values()
    )


def test_every_choice_is_one_of_the_code():
    assert SCHEMA["properties"]["format"]["enum"] == [FORMAT]
    assert set(choices("Value", "unit")) == set(choices("Metric", "unit")) == set(UNITS)
    assert set(SCHEMA["$defs"]["Step"]["properties"]["parts_s"]["properties"]) == set(PARTS)
    assert PLATFORM in choices("Metric", "scope")


@pytest.mark.full
def test_a_later_version_may_add_columns_to_the_table_of_remedies(validator):
    data = json.loads(json.dumps(a_run().to_json()))
    table = data["tests"][0]["profiles"][0]["tables"][REMEDIES]
    table["columns"].append({"key": "joules", "title": "energy", "unit": ""})
    for row in table["rows"]:
        row.append(0.5)
    validator.validate(data)


@pytest.mark.full
def test_wrong_run_files_do_not_match_the_schema(validator):
    remedies = ["tests", 0, "profiles", 0, "tables", "remedies"]
    for where, wrong in [
        (["format"], 3),
        (["created"], None),
        (["tests", 0, "outcome"], "perhaps"),
        (["tests", 0, "checks", 0, "verdict"], "GOOD"),
        (["tests", 0, "checks", 0, "kind"], "guess"),
        (["tests", 0, "profiles", 0, "metrics", "step_time", "value"], "0.1"),
        (
            ["tests", 0, "profiles", 0, "metrics", "step_time", "value"],
            None,
        ),  # with a source, and no reason
        (["tests", 0, "profiles", 0, "metrics", "step_skew", "why"], None),
        (["tests", 0, "profiles", 0, "metrics", "step_time", "unit"], "ms"),
        (["tests", 0, "profiles", 0, "steps", 0, "period_s"], -1.0),
        (["tests", 0, "profiles", 0, "steps", 0, "parts_s", "lunch"], 0.1),
        (["tests", 0, "profiles", 0, "tables", "stages", "rows", 0, 0], []),
        (["tests", 0, "profiles", 0, "metrics", "step_time", "detail", "inside"], ["MatMul"]),
        (["tests", 0, "profiles", 0, "metrics", "step_time", "detail", "outside"], {"Relu": "1"}),
        ([*remedies, "rows", 0, 1], "fast"),  # its speed-up
        ([*remedies, "rows", 0, 8], None),  # whether it is a bound
        ([*remedies, "rows", 0], ["jit_compile=True"]),
        ([*remedies, "columns", 4, "unit"], "ms"),  # of its step time
        ([*remedies, "columns", 4, "key"], "time"),
        (["tests", 0, "line"], 0),
    ]:
        data = json.loads(json.dumps(a_run().to_json()))
        *path, last = where
        place = data
        for key in path:
            place = place[key]
        place[last] = wrong
        assert not validator.is_valid(data), where
