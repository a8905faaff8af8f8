"""A profile of a trace as text."""

import textwrap
from dataclasses import replace

import pytest
from helpers.builders import profile, value

from pytest_tfperf.metrics import METRICS
from pytest_tfperf.report.profile_text import render_profile, render_table
from pytest_tfperf.values import PARTS, Advice, Column, Step, Table

TABLE = Table.of(
    "ops of a step",
    [
        Column("op", "op"),
        Column("self_s", "self time", "s"),
        Column("runs", "runs", "count"),
        Column("eager", "eager"),
        Column("share", "share", "0..1"),
    ],
    [
        ("MatMul", 0.0015, 2, False, 0.5),
        ("x" * 100, None, 1, True, 0.001),
        *(("Add", 1e-6, n, False, 0.0) for n in range(10)),
    ],
    8,
)


def of_a_step(**more):
    parts = dict.fromkeys(PARTS, 0.0) | {"input": 0.004, "other": 0.006}
    return profile("trace", steps=(Step(name="train 0", period_s=0.01, parts_s=parts),), **more)


def test_cells_have_units_and_long_names_lose_their_middle():
    title, _, _, row, long, *_ = render_table(TABLE, verbose=True)
    assert title == "ops of a step"
    assert row.split() == ["MatMul", "1.5", "ms", "2", "no", "50", "%"]
    assert "x…x" in long
    assert max(len(text) for text in long.split()) == 60


@pytest.mark.parametrize(
    ("verbose", "shown", "said"),
    [(False, 5, "and 7 more (-v shows more)"), (True, 8, "and 4 more")],
)
def test_a_table_says_how_much_of_it_is_not_shown(verbose, shown, said):
    _, _, _, *rows, more = render_table(TABLE, verbose)
    assert (len(rows), more) == (shown, said)


@pytest.mark.parametrize("known", [{}, {"input_bound": 0.1}])
def test_unknown_metrics_are_counted_and_explained_by_v(known):
    shown = of_a_step(**known)
    text, all_text = (render_profile(shown, verbose).splitlines() for verbose in (False, True))
    assert f"and {len(METRICS) - len(known)} unknown metrics (-v says why)" in text
    assert any(line.startswith("metric ") for line in text) is bool(known)
    assert not any("(-v says why)" in line for line in all_text)
    assert "retraces is unknown: not measured" in all_text


def test_a_number_without_a_unit_has_three_digits():
    lines = render_table(
        Table.of("t", [Column("intensity", "FLOP per byte")], [(56.4965517,), (0.125,)]),
        verbose=False,
    )
    assert [line.strip() for line in lines[-2:]] == ["56.5", "0.125"]


def test_tree_rows_keep_their_indentation():
    stages = Table.of(
        "input pipeline",
        [Column("stage", "stage"), Column("name", "name")],
        [("Prefetch", ""), ("  Map", "load"), ("    TensorSlice", "")],
    )
    assert render_table(stages, verbose=False)[3:] == [
        "Prefetch",
        "  Map            load",
        "    TensorSlice",
    ]


def test_the_tables_of_a_profile_fit_the_terminal():
    text = render_profile(replace(of_a_step(), tables={"ops": TABLE}), verbose=True, width=40)
    lines = text.splitlines()
    table = lines[lines.index("ops of a step") + 1 : lines.index("and 4 more")]
    assert max(map(len, table)) <= 40
    assert table[-1].startswith("no room for: ")


def test_a_short_table_has_no_count():
    assert len(render_table(Table.of("t", [Column("a", "a")], [("b",)]), verbose=False)) == 4


def test_advice_comes_with_what_it_could_win_its_reason_and_where_to_look():
    advice = Advice(
        what="use bfloat16", because="half_precision is 0 %", win_s=0.004, look="the op profile"
    )
    without = Advice(what="trace once", because="retraces is 3", win_s=None, look="function f")
    text = render_profile(with_advice(of_a_step(), advice, without), verbose=False)
    assert (
        textwrap.dedent("""\
        what to do next, by what it could win at most
          up to 4 ms a step: use bfloat16 (half_precision is 0 %; look at the op profile)
          trace once (retraces is 3; look at function f)""")
        in text
    )


def test_reasons_and_causes_are_shown_with_verbose():
    bound = value("input_bound", 0.4, where="stage Map is the slowest", **{"try": "cache()"})
    brief, long = (
        render_profile(of_a_step(input_bound=bound), verbose) for verbose in (False, True)
    )
    assert "stage Map" not in brief
    assert "input_bound, where: stage Map is the slowest\ninput_bound, try: cache()" in long
    assert "step_time is unknown: not measured" in long


def with_advice(shown, *advice):
    return replace(shown, advice=advice)
