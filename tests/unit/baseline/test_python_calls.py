"""Calls of Python functions in baselines: stored by function, shown, and decided on request."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, SERVER, profile, record_of, run_of, value
from helpers.paths import DATA

from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline
from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place, read_structure
from pytest_tfperf.baseline.structure import against_profile
from pytest_tfperf.checks.roots import ADDED
from pytest_tfperf.results import Verdict
from pytest_tfperf.values import COUNTED_BY, PARTS, Column, Step, Table, Value

COLUMNS = tuple(Column(key, key) for key in ("function", "line", "calls", "self_s"))
STEPS = tuple(
    Step(name=f"step {n}", period_s=0.1, parts_s=dict.fromkeys(PARTS, 0.0)) for n in range(2)
)
BEFORE = {"model.py:step": 1, "keras/src/layer.py:call": 20}
AFTER = {"model.py:step": 1, "keras/src/layer.py:call": 20, "keras/src/wrap.py:wrapper": 40}
PLANTED = "+40 calls of keras/src/wrap.py:wrapper a step (0 → 40), line 9"


@pytest.fixture
def place(new_place):
    return new_place()


def calling(functions, allowed=None, **metrics):
    """A profile whose step calls these functions."""
    rows = [(name, 9, calls, 0.0) for name, calls in functions.items()]
    rise = {} if allowed is None else {"max_rise": allowed}
    calls = value("python_calls", sum(functions.values()), where="called most: all", **rise)
    made = profile(python_calls=calls, steps=STEPS, **metrics)
    return replace(made, tables={"python_calls": Table.of("", COLUMNS, rows)})


def store(place, measured, environment=LAPTOP, times=1):
    for _ in range(times):
        record({place: [run_of(record_of(measured, environment=environment))]}, False)


def stored(place):
    return read_structure(place.structure)["test_step"]


def compared(place, measured, only="structural", environment=LAPTOP):
    found = compare_with_baseline(measured, "test_step", Baseline(place), environment, only, None)
    return {one.metric: one for one in found}


def test_the_calls_of_each_function_are_stored_for_the_platform(place):
    store(place, calling(BEFORE))
    store(place, calling(AFTER), SERVER)
    entry = stored(place)
    assert entry["platform"][LAPTOP["platform"]] == {"python_calls": 21}
    assert entry["python_functions"] == {LAPTOP["platform"]: BEFORE, SERVER["platform"]: AFTER}
    assert record({place: [run_of(record_of(calling(BEFORE)))]}, False).entries == ()
    [again] = record({place: [run_of(record_of(calling(AFTER)))]}, False).entries
    assert again.what == "updated: python_calls 21 → 61, calls by Python function"


def test_calls_that_differ_from_step_to_step_are_not_stored(place):
    measured = calling(BEFORE, retraces=0)
    unknown = Value.unknown("python_calls", "it differs from step to step")
    store(place, replace(measured, metrics={**measured.metrics, "python_calls": unknown}))
    entry = stored(place)
    assert entry["platform"] == {LAPTOP["platform"]: {}}
    assert "python_functions" not in entry


def test_a_few_more_calls_are_shown_with_their_functions_and_fail_nothing(place):
    store(place, calling(BEFORE))
    found = compared(place, calling(AFTER))["python_calls"]
    assert (found.verdict, found.detail["gates"]) == (Verdict.PASS, False)
    assert found.sentence == (
        "python_calls rose from 21 to 61, which does not gate: "
        "it is within 20 % or 50 of the value before"
    )
    assert found.details == (("", PLANTED),)


def test_calls_gate_beyond_both_twenty_per_cent_and_fifty(new_place):
    cases = [
        (100, 150, "PASS", True),  # 50 % and 50 calls
        (100, 151, "REGRESSION", False),
        (0, 50, "PASS", True),
        (0, 51, "REGRESSION", False),
        (1000, 1200, "PASS", True),  # 20 % and 200 calls
        (1000, 1201, "REGRESSION", False),
        (250, 300, "PASS", True),  # both at once
        (250, 301, "REGRESSION", False),
        (1000, 800, "PASS", True),
        (1000, 799, "IMPROVED", False),
        (100, 100, "PASS", False),
    ]
    for before, now, verdict, is_shown in cases:
        place = new_place()
        store(place, calling({"model.py:step": before}))
        found = compared(place, calling({"model.py:step": now}))["python_calls"]
        assert (found.verdict, found.is_shown_change) == (Verdict(verdict), is_shown), (before, now)
        if verdict == "REGRESSION":
            named = f"+{now - before} calls of model.py:step a step ({before:,} → {now:,}), line 9"
            assert found.message.splitlines()[1:] == [
                f"  {named}",
                "  if intended: pytest --tfperf-update",
            ]


def test_a_test_that_limits_the_rise_decides_it(new_place):
    cases = [(100, "PASS"), (102, "PASS"), (103, "REGRESSION"), (98, "PASS"), (97, "IMPROVED")]
    for calls, verdict in cases:
        place = new_place()
        store(place, calling({"model.py:step": 100}))
        found = compared(place, calling({"model.py:step": calls}, allowed=0.02))["python_calls"]
        assert found.verdict == Verdict(verdict), calls
        if verdict == "REGRESSION":
            assert found.message.splitlines()[:2] == [
                "python_calls rose from 100 to 103",
                "  +3 calls of model.py:step a step (100 → 103), line 9",
            ], calls


def test_unknown_calls_fail_only_a_test_that_limits_their_rise(place):
    store(place, calling(BEFORE))
    unknown = Value.unknown("python_calls", "not counted: a profiler is set")
    assert compared(place, profile(python_calls=unknown))["python_calls"].verdict == (
        Verdict.INCONCLUSIVE
    )
    limited = unknown.changed(detail={"max_rise": 0.0})
    found = compared(place, profile(python_calls=limited))["python_calls"]
    assert found.verdict is Verdict.UNKNOWN
    assert found.sentence == (
        "python_calls is unknown, 21 in the baseline: not counted: a profiler is set"
    )


def test_a_limited_rise_of_calls_that_are_not_stored_is_not_decided_and_says_so(place):
    store(place, profile(retraces=0))
    unknown = Value.unknown("python_calls", "a profiler is set").changed(detail={"max_rise": 0.02})
    cases = [(unknown, "UNKNOWN", "unknown: a profiler is set"), (None, "INCONCLUSIVE", "21")]
    for value_now, verdict, shown in cases:
        now = profile(python_calls=value_now) if value_now else calling(BEFORE, allowed=0.02)
        found = compared(place, now)["python_calls"]
        assert (found.verdict.value, found.sentence) == (
            verdict,
            "max_python_calls_regression of 2 % has nothing to compare with: "
            f"the baseline has no python_calls, and here it is {shown}",
        )


def test_a_slower_step_names_the_functions_that_python_calls_more_often(place):
    store(place, calling(BEFORE, step_time=0.01, host_overhead=0.5), times=5)
    slower = calling(AFTER, step_time=0.05, host_overhead=0.9)
    found = compared(place, slower, "timing")["step_time"]
    assert found.verdict is Verdict.REGRESSION
    assert f"  {PLANTED}" in found.message.splitlines()


def test_a_slower_step_whose_python_takes_no_longer_names_no_function(place):
    store(place, calling(BEFORE, step_time=0.01, host_overhead=0.5), times=5)
    slower = calling(AFTER, step_time=0.05, host_overhead=0.09)
    found = compared(place, slower, "timing")["step_time"]
    assert found.verdict is Verdict.REGRESSION
    assert "wrapper" not in found.message


def test_functions_of_another_platform_explain_nothing(place):
    store(place, calling(BEFORE), SERVER)
    store(place, profile(step_time=0.01), times=5)
    found = compared(place, calling(AFTER, step_time=0.05), "timing")["step_time"]
    assert found.verdict is Verdict.REGRESSION
    assert "wrapper" not in found.message


def test_another_profile_names_them_too():
    [found] = against_profile(calling(AFTER), calling(BEFORE), "main", "against")
    assert found.details == (("", PLANTED),)


def test_run_files_name_them_in_the_check_of_the_step_time():
    before = calling(BEFORE, step_time=0.01, host_overhead=0.5)
    after = calling(AFTER, step_time=0.05, host_overhead=0.9)
    [test] = compare_runs(run_of(record_of(before)), run_of(record_of(after))).tests
    [timed] = [one for one in test.checks if one.metric == "step_time"]
    assert timed.verdict is Verdict.REGRESSION
    assert ("", PLANTED) in timed.details


def test_baselines_of_format_1_are_compared_as_before_and_change_their_form_with_their_values(
    tmp_path,
):
    def step(functions, n_traces, n_steps, step_time):
        traced = value("retraces", n_traces, n_steps=n_steps)
        return calling(functions, retraces=traced, step_time=step_time, host_overhead=0.5)

    def verdicts(*arguments):
        return {name: one.verdict.value for name, one in compared(*arguments).items()}

    shutil.copytree(DATA / "format_1", tmp_path, dirs_exist_ok=True)
    place = Place.of("test_model.py", tmp_path, None)
    newer = {**LAPTOP, "setting": {**LAPTOP["setting"], "tensorflow": "2.21.1"}}
    same = step(BEFORE, 1, 600, 0.01)
    assert verdicts(place, same, None) == {
        "retraces": "PASS",
        "python_calls": "PASS",
        "step_time": "PASS",
    }
    worse = step({**BEFORE, "keras/src/wrap.py:wrapper": 400}, 2, 1200, 0.05)
    assert verdicts(place, worse, None) == {
        "retraces": "INCONCLUSIVE",  # the file tells over how many steps they were counted
        "python_calls": "REGRESSION",
        "step_time": "REGRESSION",
    }
    named = PLANTED.replace("40", "400")
    found = compared(place, worse, None, newer)
    assert found["python_calls"].details == (
        ("", named),
        ("changed besides", "tensorflow 2.21.0 → 2.21.1"),
    )
    assert f"  {named}" in found["step_time"].message.splitlines()
    store(place, worse)
    text = place.structure.read_text()
    assert ('"format": 2' in text, "setting" in text) == (True, False)
    assert verdicts(place, worse)["python_calls"] == "PASS"


REVIEWED = """\
{
  "format": 2,
  "tests": {
    "test_step": {
      "platform": {
        "cpu, TensorFlow 2.21, oneDNN on": {
          "python_calls": 121
        }
      },
      "program": {
        "retraces": 0
      },
      "python_calls": PARTS,
      "workload": {"batch": 8, "inputs": ["float32[8, 4]"]}
    }
  }
}
"""


def test_reviewers_see_the_calls_by_package_on_one_line_or_each_on_its_own(new_place):
    few = {"keras": 20, "model.py:step": 101}
    many = {f"model.py:step_with_a_long_name_{n}": 20 for n in range(5)} | {"keras": 21}
    cases = [
        (few, '{"cpu, TensorFlow 2.21, oneDNN on": {"keras": 20, "model.py:step": 101}}'),
        (
            many,
            '{\n        "cpu, TensorFlow 2.21, oneDNN on": {\n          "keras": 21,\n'
            + ",\n".join(f'          "model.py:step_with_a_long_name_{n}": 20' for n in range(5))
            + "\n        }\n      }",
        ),
    ]
    for parts, text in cases:
        place = new_place()
        measured = profile(
            python_calls=value("python_calls", 121, **{COUNTED_BY: parts}), retraces=0
        )
        store(place, measured)
        assert place.structure.read_text() == REVIEWED.replace("PARTS", text)
        assert json.loads(place.detail.read_text())["lists"]["test_step"]["setting"]


def test_added_calls_are_told_by_package_for_the_cause_that_several_changes_share(place):
    def step(**parts):
        return profile(
            python_calls=value("python_calls", sum(parts.values()), **{COUNTED_BY: parts})
        )

    store(place, step(keras=20, tensorflow=100))
    found = compared(place, step(keras=20, tensorflow=300, numpy=1))["python_calls"]
    assert found.verdict is Verdict.REGRESSION
    assert found.detail[ADDED] == {"tensorflow": 200, "numpy": 1}
