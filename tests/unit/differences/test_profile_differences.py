"""What differs between two profiles, from tables whose every number can be counted by hand."""

from dataclasses import replace

import pytest
from helpers.builders import check, profile, value

from pytest_tfperf.differences.difference import Difference, most_telling
from pytest_tfperf.differences.profiles import (
    differences,
    metric_differences,
    setting_differences,
    with_differences,
    with_reasons,
)
from pytest_tfperf.values import PARTS, Column, Step, Table

OPS = ("where", "op", "type", "occurrences", "total_s", "self_s", "share", "eager")
KEYS = {
    "host_ops": OPS,
    "device_ops": OPS,
    "stages": (
        "stage",
        "name",
        "calls",
        "self_s",
        "blocking_s",
        "element_s",
        "parallelism",
        "buffered",
        "buffer_limit",
        "kind",
    ),
    "executables": ("executable", "runs", "ops", "fusions", "hlo"),
    "graph": ("type", "before", "after"),
    "pipeline": ("stage", "python", "line"),
    "outside_xla": ("op", "type", "line", "why", "ops"),
}


def table(*rows, n_more=0):
    """Rows whose columns `profiled` adds."""
    return Table(title="", columns=(), rows=rows, n_more=n_more)


def steps(**parts_s):
    """Two steps of 100 ms, whose parts differ by a fifth from one another and are these on average."""
    return tuple(
        Step(
            name=f"step {n}",
            period_s=0.1,
            parts_s={part: factor * parts_s.get(part, 0.0) for part in PARTS},
        )
        for n, factor in enumerate((0.9, 1.1))
    )


def op(name, kind, runs, self_ms, side="host"):
    return (side, name, kind, runs, self_ms / 1e3, self_ms / 1e3, None, 0.0)


def stage(depth, kind, self_ms, blocks_ms=0.0, name="", parallelism=None, limit=None):
    return (
        "  " * depth + kind,
        name,
        1.0,
        self_ms / 1e3,
        blocks_ms / 1e3,
        self_ms / 1e3,
        parallelism,
        None,
        limit,
        "",
    )


def program(hlo):
    return ("step", 1.0, 10, 3, hlo)


def profiled(parts=None, **tables):
    found = {key: with_columns(rows, KEYS[key]) for key, rows in tables.items()}
    return replace(profile(steps=steps(**(parts or {}))), tables=found)


def with_columns(rows, keys):
    width = max(map(len, rows.rows), default=0)
    return replace(
        rows,
        columns=tuple(Column(key, key) for key in keys[:width]),
        rows=tuple((*row, *[None] * (width - len(row))) for row in rows.rows),
    )


def lines(before, after):
    return [one.line for one in differences(before, after)]


def of_ops(old, new, table_name="host_ops"):
    return lines(profiled(**{table_name: table(*old)}), profiled(**{table_name: table(*new)}))


def test_the_same_has_no_differences():
    both = profiled(
        {"input": 0.03},
        host_ops=table(op("a", "MatMul", 1, 5)),
        stages=table(stage(0, "Map", 3)),
        graph=table(("Mul", 2, 1)),
    )
    assert differences(both, both) == ()


@pytest.mark.parametrize("bare", [0, 1])
def test_of_profiles_without_a_trace_nothing_is_said(bare):
    sides = [profiled(host_ops=table(op("a", "MatMul", 1, 5))), profiled()]
    sides[bare] = replace(sides[bare], steps=())
    assert differences(*sides) == ()


def test_parts_of_the_step_that_differ_by_two_percent_of_it_are_told_by_their_size():
    before, after = (
        {"input": 0.010, "other": 0.020, "compile": 0.001},
        {"input": 0.0121, "other": 0.015, "compile": 0.0029},
    )
    assert lines(profiled(before), profiled(after)) == [
        "−5 ms: not explained, of the traced step 20 ms → 15 ms",
        "+2.1 ms: input, of the traced step 10 ms → 12.1 ms",
    ]


def test_time_of_python_is_named_where_the_trace_shows_that_it_is():
    before, after = (
        replace(one, metrics={**one.metrics, "host_overhead": value("host_overhead", 0.2)})
        for one in (profiled({"other": 0.020}), profiled({"other": 0.025}))
    )
    assert "+5 ms: Python and the loop, of the traced step 20 ms → 25 ms" in lines(before, after)


def test_times_that_differ_by_less_than_the_steps_do_among_themselves_are_none():
    for spread, said in [(0.002, 3), (0.006, 0)]:
        for uneven in [0, 1]:
            before, after = (
                profiled(
                    {"input": ms / 1e3},
                    host_ops=table(op("a", "MatMul", 1, ms)),
                    stages=table(stage(0, "Map", ms)),
                )
                for ms in (10, 15)
            )
            sides = [before, after]
            apart = (
                replace(one, period_s=0.1 + spread * n) for n, one in enumerate(sides[uneven].steps)
            )
            sides[uneven] = replace(sides[uneven], steps=tuple(apart))
            assert len(lines(*sides)) == said, (spread, uneven)


def test_a_few_steps_that_stand_out_hide_no_difference():
    before, after = (
        replace(
            profiled(), steps=steps(input=ms / 1e3) * 10 + (replace(steps()[0], period_s=1.0),) * 4
        )
        for ms in (10, 20)
    )
    assert len(lines(before, after)) == 1


def test_waiting_for_input_is_said_once():
    old, new = (
        profiled({"input": ms / 1e3}, host_ops=table(op("next", "IteratorGetNext", 1, ms)))
        for ms in (10, 15)
    )
    assert lines(old, new) == ["+5 ms: input, of the traced step 10 ms → 15 ms"]


def test_ops_by_type():
    cases = [
        (
            [],
            [op("encoder/t", "Transpose", 2, 0.8), op("t_1", "Transpose", 1, 0.4)],
            "+1.2 ms: 3 new Transpose on the host (encoder/t, t_1)",
        ),
        ([op("Transpose", "Transpose", 1, 1)], [], "−1 ms: Transpose on the host lost (1 a step)"),
        (
            [op("t", "Transpose", 1, 1)],
            [op("t", "Transpose", 3, 3)],
            "+2 ms: 2 more Transpose on the host (1 → 3 a step)",
        ),
        (
            [op("t", "Cast", 2, 1)],
            [op("t", "Cast", 0.5, 1)],
            "1.50 fewer Cast on the host (2 → 0.50 a step)",
        ),
        (
            [op("m", "MatMul", 1, 1)],
            [op("m", "MatMul", 1, 4)],
            "+3 ms: MatMul on the host takes longer (1 ms → 4 ms)",
        ),
        (
            [op("m", "MatMul", 1, 4)],
            [op("m", "MatMul", 1, 1)],
            "−3 ms: MatMul on the host takes less long (4 ms → 1 ms)",
        ),
        (
            [op("d", "Decode", 1, 1, "tf.data")],
            [op("d", "Decode", 1, 9, "tf.data")],
            "+8 ms: Decode in tf.data takes longer (1 ms → 9 ms)",
        ),
    ]
    for old, new, line in cases:
        assert of_ops(old, new) == [line], line


def test_ops_of_a_type_that_were_numbered_anew_are_counted_without_names():
    old = [op(f"fusion.{n}", "fusion", 1, 1, "GPU") for n in range(10)]
    new = [op(f"fusion.{n}", "fusion", 1, 1, "GPU") for n in range(20, 31)]
    assert of_ops(old, new, "device_ops") == ["+1 ms: 1 more fusion on the GPU (10 → 11 a step)"]
    assert (
        of_ops(old, [op(f"fusion.{n}", "fusion", 1, 1, "GPU") for n in range(20, 30)], "device_ops")
        == []
    )


def test_a_fusion_that_is_lost_is_named():
    old = [op(f"fusion.{n}", "fusion", 1, 1, "GPU") for n in (16, 17)]
    assert of_ops(old, old[:1], "device_ops") == [
        "−1 ms: 1 fewer fusion on the GPU (2 → 1 a step); fusion.17 lost"
    ]


def test_instructions_without_an_opcode_are_of_one_type_but_for_their_numbers():
    old = [op(f"add_fusion.{n}", f"add_fusion.{n}", 1, 1) for n in (1, 2)]
    assert of_ops(old, old[:1]) == [
        "−1 ms: 1 fewer add_fusion on the host (2 → 1 a step); add_fusion.2 lost"
    ]


def test_what_runs_once_an_epoch_is_not_said_to_come_or_go():
    assert of_ops([op("m", "Mul", 1, 1)], [op("m", "Mul", 1.45, 1)]) == []
    assert of_ops([], [op("m", "Mul", 0.2, 1)]) == []
    rare = ("Map", "", 0.3, 0.001, 0.0, 0.001, None, None, None, "")
    assert lines(profiled(stages=table(rare)), profiled()) == []


@pytest.mark.parametrize("side", ["host", "tf.data"])
def test_short_ops_of_the_host_which_a_warm_function_does_not_trace_are_not_said_to_come_or_go(
    side,
):
    short, long = op("m", "Mul", 2, 0.0999, side), op("m", "Mul", 2, 0.1001, side)
    assert [of_ops([one], []) for one in (short, long)] == [
        [],
        [f"−100 µs: Mul {'on the host' if side == 'host' else 'in tf.data'} lost (2 a step: m)"],
    ]
    assert of_ops([op("m", "Mul", 2, 0.001, "GPU")], [], "device_ops") == [
        "−1 µs: Mul on the GPU lost (2 a step: m)"
    ]


def test_of_a_table_that_is_cut_what_is_missing_counts_as_no_less_than_its_least_and_is_not_said_to_be_lost():
    old, new = (
        [op("a", "Big", 1, 20), op("b", "Cast", 1, 9)],
        [op("a", "Big", 1, 20), op("c", "Mul", 1, 5)],
    )
    before, after = profiled(host_ops=table(*old)), profiled(host_ops=table(*new, n_more=7))
    assert lines(before, after) == [
        "+5 ms: new Mul on the host (c)",
        "−4 ms: Cast on the host takes less long",
    ]
    assert lines(after, before) == [
        "−5 ms: Mul on the host lost (all: c)",
        "+4 ms: Cast on the host takes longer",
    ]


def test_of_tables_that_are_cut_ops_are_not_counted():
    old, new = (
        [op("a", "Cast", 1, 9), op("b", "Cast", 1, 8)],
        [op("a", "Cast", 1, 9), op("b", "Cast", 1, 8), op("c", "Cast", 1, 7)],
    )
    sides = profiled(host_ops=table(*old)), profiled(host_ops=table(*new, n_more=1))
    assert lines(*sides) == ["+7 ms: Cast on the host takes longer"]
    assert lines(*sides[::-1]) == ["−7 ms: Cast on the host takes less long"]


def test_an_op_that_is_shorter_than_those_that_were_left_out_says_nothing():
    before = profiled(host_ops=table(op("a", "Big", 1, 20), n_more=3))
    assert (
        lines(before, profiled(host_ops=table(op("a", "Big", 1, 20), op("b", "Cast", 1, 9)))) == []
    )


def test_stages_are_found_again_where_one_above_them_is_gone():
    old = [
        stage(0, "Prefetch", 1, limit=2),
        stage(1, "Map", 3, name="decode"),
        stage(2, "TensorSlice", 1),
    ]
    new = [stage(0, "Map", 9, blocks_ms=8, name="decode"), stage(1, "TensorSlice", 1)]
    assert lines(profiled(stages=table(*old)), profiled(stages=table(*new))) == [
        "+8 ms: input stage Map decode: self time 3 ms → 9 ms, blocks the step 0 ns → 8 ms",
        "−1 ms: input stage Prefetch lost",
    ]


def test_the_epochs_that_fall_into_the_window_are_no_stages_of_their_own():
    epoch = [stage(1, "MapAndBatch", 4), stage(2, "TensorSlice", 2)]
    once, twice = (
        [stage(0, "ForeverRepeat", 1), *epoch],
        [
            stage(0, "ForeverRepeat", 1),
            *(
                stage(n, kind, ms / 2)
                for n, kind, ms in [(1, "MapAndBatch", 4), (2, "TensorSlice", 2)] * 2
            ),
        ],
    )
    assert lines(profiled(stages=table(*once)), profiled(stages=table(*twice))) == []
    slower = [twice[0], stage(1, "MapAndBatch", 5), *twice[2:]]
    assert lines(profiled(stages=table(*once)), profiled(stages=table(*slower))) == [
        "+3 ms: input stage MapAndBatch: self time 4 ms → 7 ms"
    ]


def test_a_stage_whose_parallelism_changed_says_so_where_its_times_did():
    old, new = (
        stage(0, "ParallelMap", 3, parallelism=8),
        stage(0, "ParallelMap", 3, blocks_ms=40, parallelism=1),
    )
    sides = profiled(stages=table(old)), profiled(stages=table(new))
    assert lines(*sides) == [
        "+40 ms: input stage ParallelMap: self time 3 ms → 3 ms, blocks the step 0 ns → 40 ms, parallelism 8 → 1"
    ]
    assert lines(profiled(stages=table(old)), profiled(stages=table((*old[:6], 7, *old[7:])))) == []


def test_stages_of_a_pipeline_that_was_none():
    assert lines(profiled(), profiled(stages=table(stage(0, "Batch", 4)))) == [
        "+4 ms: input stage Batch new"
    ]


def test_executables():
    cases = [
        (
            [("step", 1.0, 10, 3)],
            [("step", 1.0, 12, 2)],
            ["XLA executable step: 10 → 12 ops, 3 → 2 fusions"],
        ),
        ([("step", 1.0, 10, 3)], [("step", 2.0, 10, 3)], ["XLA executable step: 1 → 2 runs"]),
        (
            [program("aa")],
            [program("bb")],
            ["XLA executable step: other instructions, as many as before"],
        ),
        ([program("aa")], [program("aa")], []),
        (
            [program("aa")],
            [program("aa"), ("step", 0.2, 10, 3)],
            [],
        ),  # of the last batch of an epoch
        ([("step", 1.0, 10, 3)], [("step", 0.9, 10, 3)], []),
        ([program("aa"), program("bb")], [program("bb"), program("aa")], []),
        ([program("aa")], [("step", 1.0, 10, 3)], []),
        ([("step", 1.0, 10, 3), ("step", 1.0, 1, 0)], [("step", 2.0, 11, 3)], []),
        (
            [("step", 1.0, 10, 3)],
            [("loss", 1.0, 10, 3)],
            ["XLA executable step lost", "XLA executable loss new"],
        ),
    ]
    for old, new, said in cases:
        assert (
            lines(profiled(executables=table(*old)), profiled(executables=table(*new))) == said
        ), (old, new, said)


def test_the_graph_tells_the_types_whose_number_changed_the_most_on_top():
    old, new = (
        [("Mul", 4, 1), ("Cast", 2, 2), ("Add", 1, 1)],
        [("Mul", 4, 2), ("Cast", 9, 9), ("Add", 1, 1), ("Pack", 1, 1)],
    )
    assert lines(profiled(graph=table(*old)), profiled(graph=table(*new))) == [
        "graph: Pack 0 → 1 (new), Cast 2 → 9, Mul 1 → 2"
    ]
    assert lines(profiled(graph=table(*old)), profiled(graph=table(*new, n_more=1))) == []
    assert lines(profiled(), profiled(graph=table(*new))) == []


def test_what_left_xla_is_told_with_its_reason():
    outside = [
        ("where", "Where", "model.py:3", "XLA has no kernel", 1),
        ("u", "Unique", None, "its output has no fixed shape", 1),
    ]
    before = profiled(
        executables=table(("step", 1.0, 10, 3)),
        outside_xla=table((*outside[0][:2], "model.py:2", *outside[0][3:])),
    )
    after = replace(
        before,
        tables={**before.tables, "outside_xla": with_columns(table(*outside), KEYS["outside_xla"])},
    )
    assert lines(before, after) == ["outside XLA now: Unique (its output has no fixed shape)"]
    assert lines(profiled(), profiled(outside_xla=table(*outside))) == []


def test_names_of_ten_thousand_letters_are_cut():
    [line] = of_ops([], [op("x" * 10_000, "T" * 10_000, 1, 5)])
    assert len(line) < 250
    assert "…" in line


def test_settings_that_both_have_and_that_differ():
    before = {"tensorflow": "2.20.0", "python": "3.11", "xla_flags": "--a"}
    after = {"tensorflow": "2.21.0", "python": "3.11", "xla_flags": "", "keras": "3.15"}
    assert [one.line for one in setting_differences(before, after)] == [
        "tensorflow 2.20.0 → 2.21.0",
        "xla_flags --a → none",
    ]


TIMED = [Difference(what=f"timed {n}", seconds=(9 - n) / 1e3) for n in range(6)]
OTHERS = [Difference(what=f"other {n}") for n in range(4)]


def test_a_few_lines_have_room_for_what_has_no_time():
    cases = [
        (6, 4, (3, 2)),
        (6, 1, (4, 1)),
        (6, 0, (5, 0)),
        (1, 4, (1, 4)),
        (2, 4, (2, 3)),
        (0, 4, (0, 4)),
        (0, 0, (0, 0)),
    ]
    for n_timed, n_others, shown in cases:
        wanted = [*TIMED[: shown[0]], *OTHERS[: shown[1]]]
        assert most_telling([*TIMED[:n_timed], *OTHERS[:n_others]], 5) == wanted, shown


def test_shares_that_differ_by_two_percent_of_the_step_are_told_where_there_is_no_trace_to_compare_with():
    before = {
        "input_bound": 0.02,
        "host_overhead": 0.31,
        "device_busy": 0.9,
        "step_time": 0.1,
        "collective_time": 0.5,
        "commit": "abc",
    }
    after = profile(
        input_bound=0.19, host_overhead=0.3, device_busy=0.4, step_time=0.2, tensor_core_time=0.3
    )
    assert [one.line for one in metric_differences([before], after)] == [
        "device_busy 90 % → 40 %",
        "input_bound 2 % → 19 %",
    ]


def test_a_share_that_was_so_in_one_of_the_runs_is_no_difference():
    before = [{"input_bound": share} for share in (0.1, 0.11, 0.12, 0.3)]
    assert [
        one.line
        for share in (0.19, 0.31)
        for one in metric_differences(before, profile(input_bound=share))
    ] == ["input_bound 11.5 % → 31 %"]


def test_of_a_regression_the_message_says_what_differs_and_of_others_the_detail_alone():
    bad, good = (
        with_differences(
            check(verdict, sentence="said", advice=(("try", "this"),)), [*TIMED, *OTHERS]
        )
        for verdict in ("REGRESSION", "PASS")
    )
    assert bad.message.splitlines() == [
        "said",
        *(f"  {one.line}" for one in (*TIMED[:3], *OTHERS[:2])),
        "  try: this",
    ]
    assert good.message == "said\n  try: this"
    assert (
        bad.detail
        == good.detail
        == {
            "differences": [{"what": one.what, "seconds": one.seconds} for one in (*TIMED, *OTHERS)]
        }
    )


def test_a_number_of_ops_outside_xla_that_regressed_says_which_are_new():
    before, after = (
        profiled(
            executables=table(("step", 1.0, 10, 3)),
            outside_xla=table(*[("w", "Where", "model.py:3", "no kernel", 1)] * n),
        )
        for n in (0, 1)
    )
    bad, other, good = (
        with_reasons(
            check(verdict, metric, "said", advice=(("try", "this"),)), before, after
        ).message
        for verdict, metric in (
            ("REGRESSION", "xla_coverage"),
            ("REGRESSION", "flops"),
            ("IMPROVED", "xla_coverage"),
        )
    )
    assert bad == "said\n  outside XLA now: Where at model.py:3 (no kernel)\n  try: this"
    assert other == good == "said\n  try: this"


def test_all_new_op_types_come_first_and_only_changed_ones_are_cut():
    kinds = [f"New{n}" for n in range(9)]
    old = [(kind, 50, 50) for kind in "ABCDEF"]
    new = [(kind, 90 + n, 90 + n) for n, kind in enumerate("ABCDEF")]
    new += [(kind, 1, 1) for kind in kinds]
    [line] = lines(profiled(graph=table(*old)), profiled(graph=table(*new)))
    assert line.startswith(
        f"graph: {', '.join(f'{kind} 0 → 1 (new)' for kind in kinds)}, F 50 → 95"
    )
    assert line.endswith("C 50 → 92, and 2 more")


def test_a_stage_that_runs_python_now_is_named_with_its_line():
    def with_stages(*rows):
        return profiled(pipeline=table(*rows))

    plain = [("Range", "", None), ("Map", "", None), ("Prefetch", "", None)]
    python = [plain[0], ("Map", "py_function", "data.py:7"), plain[2]]
    added = [*plain[:2], ("Map", "numpy_function", None), plain[2]]
    assert lines(with_stages(*plain), with_stages(*python)) == [
        "input stage Map runs Python now: py_function at data.py:7"
    ]
    assert lines(with_stages(*plain), with_stages(*added)) == [
        "input stage Map is new, and runs Python: numpy_function"
    ]
    assert lines(with_stages(*python), with_stages(*python)) == []
    assert lines(profiled(), with_stages(*python)) == []


def test_no_more_than_twenty_are_kept_and_none_are_no_detail():
    assert len(with_differences(check("PASS"), TIMED * 9).detail["differences"]) == 20
    assert with_differences(check("REGRESSION"), []) == check("REGRESSION")
