"""What reports say of the other environment of a run."""

import json

import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of
from helpers.paths import ROOT

from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.report.run_text import describe_other_python

PYTHON = "/other/bin/python"


def environment(name="keras 3.5", **packages):
    versions = {one: {"before": old, "after": new} for one, (old, new) in packages.items()}
    return {**LAPTOP, "against": {"name": name, "python": PYTHON, "packages": versions}}


def test_it_is_described_in_one_line():
    for found, text in [
        (LAPTOP, ""),
        (environment(keras=("3.5", "3.15")), f"keras 3.5 ({PYTHON}): keras 3.5 → 3.15"),
        (environment(PYTHON), f"{PYTHON}: the same packages"),
        (environment(PYTHON, a=("1", None), b=(None, "2")), f"{PYTHON}: a 1 → none, and 1 more"),
    ]:
        assert describe_other_python(found, 1) == text, found


FOUND = environment(keras=("3.5", "3.15"), numpy=("1.26", "2.1"))
RUN = run_of(*(record_of(profile(), key=key, environment=FOUND) for key in ("a", "b")))


def test_every_report_names_it_once():
    line = f"keras 3.5 ({PYTHON}): keras 3.5 → 3.15, numpy 1.26 → 2.1"
    assert render_markdown(RUN).count(f"Against `{line}`") == 1
    assert render_html(RUN).count(f"against {line}") == 1


@pytest.mark.full  # needs jsonschema
def test_the_schema_has_it():
    import jsonschema

    schema = json.loads((ROOT / "docs/run.schema.json").read_text(encoding="utf-8"))
    content = json.loads(json.dumps(RUN.to_json()))
    jsonschema.validate(content, schema)
    del content["tests"][0]["environment"]["against"]["packages"]["keras"]["after"]
    with pytest.raises(jsonschema.ValidationError, match="'after' is a required property"):
        jsonschema.validate(content, schema)
