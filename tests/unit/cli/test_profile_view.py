"""The output of `tfperf analyze`: the first screen, and what -v adds."""

import textwrap
from dataclasses import replace

import pytest
from helpers.builders import profile, value
from helpers.screen import screen, text_of

from pytest_tfperf.cli.trace_commands import profile_view
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.multi_host import AnalysedTrace
from pytest_tfperf.values import PARTS, Advice, Column, Step, Table, Value

NO_TIME = Value.unknown("step_time", "no steps")


def of_a_step(tables=None, advice=(), n_steps=1, **more):
    parts = dict.fromkeys(PARTS, 0.0) | {"input": 0.004, "other": 0.006}
    steps = tuple(Step(name=f"train {n}", period_s=0.01, parts_s=parts) for n in range(n_steps))
    shown = profile("trace", steps=steps, **more)
    return replace(shown, step_source="step_num", tables=tables or {}, advice=advice)


def shown(of, verbosity=0, width=1_000_000, encoding="utf-8", **fields):
    to = screen(width, encoding)
    analysed = AnalysedTrace(profile=of, step_time=NO_TIME, **fields)
    return text_of(profile_view(analysed, verbosity, to), to)


def advised(n):
    return tuple(
        Advice(what=f"do {n}", because=f"reason {n}", win_s=(9 - n) * 1e-3, look=f"place {n}")
        for n in range(n)
    )


def test_the_first_screen_as_a_whole():
    advice = (
        Advice(
            what="use bfloat16", because="half_precision is 0 %", win_s=0.004, look="the op profile"
        ),
        Advice(what="trace once", because="retraces is 3", win_s=None, look="function f"),
    )
    ops = Table.of(
        "ops",
        [Column("where", "where"), Column("op", "op"), Column("share", "share", "0..1")],
        [("host", "MatMul", 0.5)],
    )
    made = of_a_step({"host_ops": ops}, advice, host_overhead=0.6, retraces=3)
    lines = shown(replace(made, notes=("a remark",)), framework="JAX", devices="8 GPUs")
    assert "\n".join(lines) + "\n" == textwrap.dedent("""\
        trace: JAX, 8 GPUs, 1 step of 10 ms (train, from step_num)
        ███████████████████████████████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
        █ Python and the loop 60 %  ▒ input 40 %
        Verdict: Python and the loop take 60 % of the step.
        What to do, by the time that it saves at most:
          1. up to 4 ms a step: use bfloat16 (half_precision is 0 %)
          2. trace once (retraces is 3)
        Key figures: retraces 3
        Top ops of the host: MatMul 50 %
        note: a remark
        -v shows 2 metrics and 1 table, and why 37 metrics are unknown.
        """).replace("why 37", f"why {len(METRICS) - 2}")


@pytest.mark.parametrize(("n_steps", "parts"), [(0, False), (1, True)])
def test_nothing_to_advise_and_no_steps(n_steps, parts):
    lines = shown(of_a_step(n_steps=n_steps))
    assert "No advice: nothing exceeds its threshold." in lines
    assert any("input" in line for line in lines) is parts
    assert shown(of_a_step(n_steps=n_steps), verbosity=2)


def test_unexplained_time_is_not_pythons():
    lines = shown(of_a_step())
    assert "█ not explained 60 %  ▒ input 40 %" in lines
    assert not any("Python" in line for line in lines)


def test_the_bar_differs_by_glyph_where_the_encoding_has_no_blocks():
    lines = shown(of_a_step(), width=60, encoding="ascii")
    assert lines[1] == "#" * 36 + "=" * 24
    assert lines[2].startswith("# not explained")


def test_the_bar_fits_the_terminal_and_shows_every_visible_part():
    for width in [10, 40, 72, 100]:
        lines = shown(of_a_step(), width=width)
        bar = next(line for line in lines if set(line) == {"█", "▒"})
        assert len(bar) == min(width, 72), width
        assert max(map(len, shown(of_a_step(), verbosity=1, width=80))) <= 80, width


def test_parts_that_are_too_small_for_the_bar_are_in_its_legend():
    parts = dict.fromkeys(PARTS, 0.0) | {"input": 1.0, "compile": 1e-9, "output": 2e-9}
    tiny = profile("t", steps=(Step(name="a 0", period_s=1.0, parts_s=parts),))
    lines = shown(tiny)
    assert set(lines[1]) == {"█"}
    assert lines[2] == "█ input 100 %  ▒ output <0.0001 %  ░ compile <0.0001 %"


@pytest.mark.parametrize(("verbosity", "n", "more"), [(0, 3, 1), (1, 5, 0)])
def test_advice_beyond_the_third_is_for_v(verbosity, n, more):
    lines = shown(of_a_step(advice=advised(5)), verbosity)
    assert sum(line.startswith("  ") and line[3] == "." for line in lines[:12]) == n
    assert sum("and 2 more (-v shows all)" in line for line in lines) == more
    assert any("look at place 0" in line for line in lines) is bool(verbosity)


def test_long_advice_wraps_behind_its_number():
    advice = (Advice(what="word " * 30, because="b", win_s=None, look=""),)
    lines = shown(of_a_step(advice=advice), width=60)
    first = lines.index("What to do, by the time that it saves at most:") + 1
    assert lines[first].startswith("  1. word")
    assert all(line.startswith("     word") for line in lines[first + 1 : first + 3])
    assert max(map(len, lines)) <= 60


TABLE = Table.of("ops of a step", [Column("op", "op")], [(f"op{n}",) for n in range(9)])


def test_v_adds_parts_metrics_and_every_table():
    made = of_a_step({"ops": TABLE, "memory": TABLE}, host_overhead=0.6, retraces=0)
    assert not any("op8" in line for line in shown(made))
    lines = shown(made, verbosity=1)
    assert sum(line == "op8" for line in lines) == 2
    words = [line.split() for line in lines]
    assert ["Python", "and", "the", "loop", "6", "ms", "60", "%"] in words
    assert ["step", "10", "ms", "100", "%"] in words
    assert ["retraces", "0"] in words
    assert not any(line.startswith("-v shows") for line in lines)


@pytest.mark.parametrize("known", [{}, {"input_bound": 0.1}])
def test_unknown_metrics_are_counted_and_explained_by_v(known):
    made = of_a_step(**known)
    brief, whole = shown(made), shown(made, verbosity=1)
    assert brief[-1] == (
        f"-v shows {len(known)} metric{'s' * (len(known) != 1)} and 0 tables, and why "
        f"{len(METRICS) - len(known)} metrics are unknown."
    )
    assert "retraces is unknown: not measured" in whole
    assert any(line.startswith("metric ") for line in whole) is bool(known)


def test_reasons_and_causes_are_shown_with_v():
    bound = value("input_bound", 0.4, where="stage Map is the slowest", **{"try": "cache()"})
    brief, whole = (shown(of_a_step(input_bound=bound), verbosity) for verbosity in (0, 1))
    assert not any("stage Map" in line for line in brief)
    assert "input_bound, where: stage Map is the slowest" in whole
    assert "input_bound, try: cache()" in whole


def test_names_with_brackets_and_colons_are_shown_as_they_are():
    odd = Table.of("ops [b]", [Column("op", "op")], [("[red]a[/red] :smile:",)])
    lines = shown(replace(of_a_step({"ops": odd}), name="[x]/t.pb", notes=("[y]",)), verbosity=1)
    assert lines[0].startswith("[x]/t.pb: ")
    assert "note: [y]" in lines
    assert "[red]a[/red] :smile:" in lines
