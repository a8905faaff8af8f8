"""
Run files and baselines that mean harm: much of one thing. `RUNS[name](n)` and `BASELINES[name](n)` have n of them.

They begin as the files of tests/data/fuzz, which have something of all.
"""

import copy
import json

from helpers.paths import DATA

_RUN = json.loads((DATA / "fuzz" / "run" / "every_field.json").read_text("utf-8"))
_TIMING = json.loads((DATA / "fuzz" / "timing" / "seven_runs.json").read_text("utf-8"))
_STRUCTURE = json.loads((DATA / "fuzz" / "structure" / "seven_runs.json").read_text("utf-8"))


def deep_lists(n):
    return "[" * n + "]" * n


def deep_objects(n):
    return '{"a":' * n + "1" + "}" * n


def unclosed_lists(n):
    return "[" * n


def wide_object(n):
    return json.dumps({f"k{k}": k for k in range(n)})


def wide_list(n):
    return json.dumps([0] * n)


def equal_keys(n):
    return "{" + ",".join(['"a":1'] * n) + "}"


def digits(n):
    return '{"format": ' + "9" * n + "}"


def fraction_digits(n):
    return '{"format": 0.' + "1" * n + "}"


def escapes(n):
    return '{"format": "' + "\\u0041" * n + '"}'


PLAIN = (deep_lists, deep_objects, unclosed_lists, wide_object, wide_list, equal_keys, digits, fraction_digits, escapes)  # fmt: skip


def _run(change):
    """A form that changes a copy of the run, and its first test and profile: `change(run, test, profile, n)`."""

    def form(n):
        run = copy.deepcopy(_RUN)
        test = run["tests"][0]
        change(run, test, test["profiles"][0], n)
        return json.dumps(run)

    return form


def _numbered(one, n, *keys):
    """Copies of an object, whose values of some keys are numbered."""
    return [{**one, **{key: f"{one[key]}{k}" for key in keys}} for k in range(n)]


def _repeat(path, *keys):
    """A form in which the list at a path has n items like its first; `profile` and `test` begin a path."""

    def change(run, test, profile, n):
        first, *rest = path.split(".")
        holder = {"run": run, "test": test, "profile": profile}[first]
        for key in rest[:-1]:
            holder = holder[int(key) if isinstance(holder, list) else key]
        item = holder[rest[-1]][0]
        holder[rest[-1]] = _numbered(item, n, *keys) if keys else [item] * n

    return _run(change)


def _lengthen(run, test, profile, n):
    profile["name"] = "x" * n


def _lengthen_cells(run, test, profile, n):
    for table in profile["tables"].values():
        for row in table["rows"]:
            row[:] = ["<x " * n if isinstance(cell, str) else cell for cell in row]


def _long_table(run, test, profile, n):
    for table in profile["tables"].values():
        table["rows"] = table["rows"][:1] * n


def _wide_detail(run, test, profile, n):
    next(iter(profile["metrics"].values()))["detail"] = {f"k{k}": "x" for k in range(n)}


def _wide_workload(run, test, profile, n):
    profile["workload"] = {f"k{k}": k for k in range(n)}


def _own_metrics(run, test, profile, n):
    one = next(iter(profile["metrics"].values()))
    profile["metrics"].update({f"own_{k}": {**one, "detail": {}} for k in range(n)})


def _tests(run, test, profile, n):
    run["tests"] = _numbered(test, n, "nodeid", "key", "file")


def _small_tests(run, test, profile, n):
    small = {**test, "profiles": [], "checks": []}
    run["tests"] = _numbered(small, n, "nodeid", "key", "file")


def _profiles(run, test, profile, n):
    small = {**profile, "metrics": {}, "tables": {}, "steps": []}
    test["profiles"] = _numbered(small, n, "name")


RUNS = {form.__name__.replace("_", " "): form for form in PLAIN} | {
    "tests": _run(_tests),
    "small tests": _run(_small_tests),
    "profiles": _run(_profiles),
    "steps": _repeat("profile.steps"),
    "checks": _repeat("test.checks"),
    "notes": _repeat("profile.notes"),
    "rows of every table": _run(_long_table),
    "long cells": _run(_lengthen_cells),
    "a long name": _run(_lengthen),
    "details of a metric": _run(_wide_detail),
    "custom metrics": _run(_own_metrics),
    "workload": _run(_wide_workload),
}


def _stored(content, change):
    def form(n):
        stored = copy.deepcopy(content)
        [(key, entry)] = stored["tests"].items()
        change(stored, key, entry, n)
        return json.dumps(stored)

    return form


def _entries(stored, key, entry, n):
    stored["tests"] = {f"{key}{k or ''}": entry for k in range(n)}


def _history(stored, key, entry, n):
    entry["runs"] = [{**entry["runs"][0], "step_time": 0.0125 + k % 7 * 1e-4, "commit": f"c{k}"} for k in range(n)]  # fmt: skip


def _numbers_of_a_run(stored, key, entry, n):
    entry["runs"] = [{**run, **{f"m{k}": k for k in range(n)}} for run in entry["runs"]]


def _op_types(stored, key, entry, n):
    [platform] = entry["op_types"]
    entry["op_types"][platform] = {f"Op{k}": 1 for k in range(n)}


def _calls(stored, key, entry, n):
    [platform] = entry["python_functions"]
    entry["python_functions"][platform] = {f"m.py:f{k}": 1 for k in range(n)}


def _stages(stored, key, entry, n):
    entry["pipeline"] = [f"Map at m.py:{k}" for k in range(n)]


def _platforms(stored, key, entry, n):
    [platform] = entry["platform"]
    entry["platform"] |= {f"{platform}{k}": entry["platform"][platform] for k in range(n)}


def _program(stored, key, entry, n):
    entry["program"] |= {f"m{k}": k for k in range(n)}


BASELINES = {
    **{f"structure: {form.__name__.replace('_', ' ')}": form for form in PLAIN},
    "structure: entries": _stored(_STRUCTURE, _entries),
    "structure: op types": _stored(_STRUCTURE, _op_types),
    "structure: Python functions": _stored(_STRUCTURE, _calls),
    "structure: stages": _stored(_STRUCTURE, _stages),
    "structure: platforms": _stored(_STRUCTURE, _platforms),
    "structure: metrics": _stored(_STRUCTURE, _program),
    "timing: entries": _stored(_TIMING, _entries),
    "timing: a history": _stored(_TIMING, _history),
    "timing: numbers of a run": _stored(_TIMING, _numbers_of_a_run),
}
