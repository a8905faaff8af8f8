"""Two run files side by side: verdicts, what differs in the settings, and what differs between the traces."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of
from helpers.golden import assert_golden

from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.report.comparison import compared_runs_json, render_compared_runs
from pytest_tfperf.values import PARTS, Column, Step, Table

NEWER = {**LAPTOP, "setting": {"tensorflow": "2.21.1", "precision": "float32"}}


def traced(input_s, retraces=0, ops=()):
    """Three steps of 100 ms which wait for input so long, and these ops of their host."""
    parts = {part: input_s if part == "input" else 0.0 for part in PARTS}
    steps = tuple(Step(name=f"step {n}", period_s=0.1, parts_s=parts) for n in range(3))
    table = Table(
        title="ops",
        columns=tuple(Column(key, key) for key in ("where", "op", "type", "occurrences", "self_s")),
        rows=tuple(("host", name, kind, 1.0, seconds) for name, kind, seconds in ops),
    )
    return replace(
        profile(step_time=0.1 + input_s, retraces=retraces, steps=steps), tables={"host_ops": table}
    )


def pair(environment=NEWER):
    before = record_of(traced(0.01, ops=[("a", "MatMul", 0.02)]), environment=LAPTOP)
    after = record_of(
        traced(0.04, 1, [("a", "MatMul", 0.02), ("t", "Transpose", 0.003)]), environment=environment
    )
    return run_of(before, second=0), run_of(after, second=60, commit="def456")


def shown(before, after, verbose=False):
    return [
        line.text
        for line in render_compared_runs(before, after, compare_runs(before, after), 100, verbose)
    ]


def test_the_comparison_as_a_whole():
    assert_golden("compare.txt", "\n".join(shown(*pair())) + "\n")


def test_a_run_does_not_differ_from_itself():
    before, _ = pair()
    assert not [
        line for line in shown(before, before) if "differs" in line or line.startswith("changed:")
    ]


def test_a_changed_setting_is_shown_once():
    before, after = pair()
    both = [
        replace(run, tests=(*run.tests, replace(run.tests[0], key="test_other")))
        for run in (before, after)
    ]
    assert [line for line in shown(*both) if line.startswith("changed:")] == [
        "changed: tensorflow 2.21.0 → 2.21.1"
    ]


@pytest.mark.parametrize(
    ("verbose", "n_shown", "title"),
    [
        (False, 5, "what differs between the traces, 5 of 9 (-v shows more)"),
        (True, 9, "what differs between the traces"),
    ],
)
def test_the_largest_differences_are_shown_by_default(verbose, n_shown, title):
    old = record_of(traced(0.01))
    new = record_of(traced(0.01, ops=[(f"op{n}", f"Kind{n}", 0.001 * (n + 1)) for n in range(9)]))
    lines = shown(run_of(old), run_of(new), verbose)
    [start] = [place for place, line in enumerate(lines) if line.endswith(title)]
    assert lines[start + 1] == "  +9 ms: 1 new Kind8 on the host (op8)"
    assert lines[start + n_shown + 1].startswith("tfperf: ")


def test_a_profile_of_one_run_alone_has_no_differences():
    before, after = pair()
    assert not [
        line
        for line in shown(before, replace(after, tests=(replace(after.tests[0], key="test_new"),)))
        if "differs" in line
    ]


def test_reports_have_differences_with_the_step_time():
    before, after = pair()
    [timed] = [
        check
        for check in compare_runs(before, after).tests[0].checks
        if check.metric == "step_time"
    ]
    assert [one["what"] for one in timed.detail["differences"]] == [
        "input, of the traced step 10 ms → 40 ms",
        "1 new Transpose on the host (t)",
    ]


def test_the_json_has_differences():
    before, after = pair()
    data = compared_runs_json(before, after, compare_runs(before, after))
    assert data["tests"][0]["differences"] == {
        "": [
            {"what": "input, of the traced step 10 ms → 40 ms", "seconds": pytest.approx(0.03)},
            {"what": "1 new Transpose on the host (t)", "seconds": 0.003},
        ]
    }
    assert list(data["tests"][0]["profiles"][""]) == ["step_time", "retraces"]
