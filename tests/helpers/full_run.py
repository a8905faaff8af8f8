"""
A run file with every field that its schema names, and one text in every field that is free text.

    full_run("\\x1b[31m")              # every name, message, key and cell is this text

Choices (`verdict`, `unit`) are valid, numbers are plausible. So the file keeps to the schema, whatever the text is.
"""

from helpers.paths import ROOT

from pytest_tfperf.json_file import read_json
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.report.run_details import _COLUMNS
from pytest_tfperf.values import COMPARISON, PARTS

RUN_SCHEMA = read_json(ROOT / "docs" / "run.schema.json")
CHECKED = ("step_time", "retraces")
DETAILED = (*CHECKED, "input_bound", "throughput", "xla_compiles")
"""Metrics with every fact that the schema names; others have none."""
OTHER_TABLES = (
    *("roofline", "median_step", "op_guide", "padding", "memory", "memory_over_step"),
    *("functions", "kernels", "op_profile", "device_parts", "alignment"),
)


def example(part, text):
    """A value for a part of the schema."""
    if "$ref" in part:
        place = RUN_SCHEMA
        for key in part["$ref"].split("/")[1:]:
            place = place[key]
        return example(place, text)
    if "anyOf" in part:
        return example(part["anyOf"][0], text)
    if "enum" in part:
        return part["enum"][0]
    kind = part["type"]
    if kind == "object":
        return _object(part, text)
    if kind == "array":
        items = part.get("prefixItems") or part.get("minItems", 1) * [part["items"]]
        return [example(item, text) for item in items]
    return {"string": text, "number": 0.25, "integer": 1, "boolean": False}[kind]


def _object(part, text):
    if "properties" not in part and "additionalProperties" not in part:
        return {text: text, f"{text} ": [text], "n": 1.5}
    made = {name: example(inner, text) for name, inner in part.get("properties", {}).items()}
    others = part.get("additionalProperties")
    return made | ({text: example(others, text)} if isinstance(others, dict) else {})


def defined(name, text):
    return example(RUN_SCHEMA["$defs"][name], text)


def full_run(text, tests=("passed", "failed")):
    """The content of a run file, with tests of these outcomes."""
    tests = [_test(text, outcome, number) for number, outcome in enumerate(tests)]
    return example(RUN_SCHEMA, text) | {"format": 2, "tests": tests}


def _test(text, outcome, number):
    name = f"{text}{number or ''}"
    parts = {"profiles": [_profile(text)], "checks": list(_checks(text))}
    return defined("ProfiledTest", text) | {
        "outcome": outcome,
        "nodeid": name,
        "key": name,
        **parts,
    }


def _profile(text):
    """A profile with every metric, known and unknown, and every table."""
    known = defined("Value", text) | {"source": "trace", "why": None}
    unknown = defined("Value", text) | {"value": None, "source": None}
    metrics = {
        name: (unknown if n % 5 == 4 else known)
        | {"unit": METRICS[name].unit}
        | ({} if name in DETAILED else {"detail": {}})
        for n, name in enumerate(METRICS)
    }
    own = f"{text} own"
    step = defined("Step", text) | {"parts_s": dict.fromkeys(PARTS, 0.1), "period_s": 0.9}
    return defined("Profile", text) | {
        "metrics": metrics | {own: known},
        "own": {own: defined("Metric", text)},
        "tables": {key: _table(text, cells) for key, cells in _tables(text)},
        "steps": [step, step, step | {"period_s": 1.8}],
    }


def _tables(text):
    """Keys of tables with the cells of a row: text, numbers, nothing."""
    for key, kinds in _COLUMNS.items():
        yield key, {name: _cell(str(kind), text) for name, kind in kinds.items()}
    for key in {*OTHER_TABLES, text} - _COLUMNS.keys():
        yield key, {f"{text}.": text, "share": 0.5, f"{text}:": None}
    yield COMPARISON, {"result": f"against {text}", "a": text, "b": text}


def _cell(kind, text):
    return 1.5 if "float" in kind else False if "bool" in kind else text


def _table(text, cells):
    columns = [
        {"key": key, "title": text, "unit": "s" if isinstance(cell, float) else ""}
        for key, cell in cells.items()
    ]
    return {"title": text, "columns": columns, "rows": 2 * [list(cells.values())], "n_more": 1}


def _checks(text):
    """Checks of every kind and every verdict: of the step time, of another metric, and of what is no metric."""
    check, parts = defined("Check", text), RUN_SCHEMA["$defs"]
    verdicts = parts["Verdict"]["enum"]
    for number, kind in enumerate(parts["Check"]["properties"]["kind"]["enum"]):
        for place, metric in enumerate((*CHECKED, text)):
            for verdict in verdicts[(number + place) % 3 :: 3]:
                yield check | {"metric": metric, "kind": kind, "verdict": verdict, "profile": text}
