"""Tables of the commands: what a terminal shows of them, and what a file holds."""

from textwrap import dedent

import pytest
from helpers.screen import screen, text_of

from pytest_tfperf.cli.terminal import laid_out, profile_table
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.values import Column, Table

CELLS = TextTable(
    ("where", "op", "self time a step", "share", "kind"),
    (
        ("host", "MatMul", "1 ms", "9.1 %", ""),
        ("host", "a/scope/with/a/long/name/and/Conv2D", "10.5 ms", "90.9 %", "put in by Keras"),
    ),
    (False, False, True, True, False),
)
OPS = Table.of(
    "ops of a step",
    [
        Column("op", "op"),
        Column("self_s", "self time", "s"),
        Column("runs", "runs", "count"),
        Column("eager", "eager"),
        Column("share", "share", "0..1"),
        Column("intensity", "FLOP per byte"),
    ],
    [
        ("MatMul", 0.0015, 2, False, 0.5, 1234.5),
        ("x" * 100, None, 1, True, 4.21e-9, 0.125),
        *(("Add", 1e-6, n, False, 0.0, None) for n in range(10)),
    ],
    8,
)


def lines_of(cells, width):
    return text_of(laid_out(cells, width), screen(width))


def shown(key, table, verbosity=0, width=1_000_000):
    to = screen(width)
    return text_of(profile_table(key, table, verbosity, to), to)


def test_a_file_holds_every_cell_on_its_line():
    assert lines_of(CELLS, 1_000_000) == [
        "where  op                                   self time a step   share  kind",
        "-----  -----------------------------------  ----------------  ------  ---------------",
        "host   MatMul                                           1 ms   9.1 %",
        "host   a/scope/with/a/long/name/and/Conv2D           10.5 ms  90.9 %  put in by Keras",
    ]


def test_a_narrower_terminal_folds_titles_and_names():
    assert "\n".join(lines_of(CELLS, 66)) + "\n" == dedent("""\
        where  op                      self time   share  kind
                                          a step
        -----  ----------------------  ---------  ------  ---------------
        host   MatMul                       1 ms   9.1 %
        host   a/scope/with/a/long/na    10.5 ms  90.9 %  put in by Keras
               me/and/Conv2D
        """)


def test_columns_without_room_are_continued_with_the_names_of_the_rows():
    assert "\n".join(lines_of(CELLS, 40)) + "\n" == dedent("""\
        where  op             self time   share
                                 a step
        -----  -------------  ---------  ------
        host   MatMul              1 ms   9.1 %
        host   a/scope/with/    10.5 ms  90.9 %
               a/long/name/a
               nd/Conv2D

        op                         kind
        -------------------------  ---------
        MatMul
        a/scope/with/a/long/name/  put in by
        and/Conv2D                 Keras
        """)


def test_a_continuation_names_rows_of_a_group_by_the_group():
    grouped = TextTable(
        ("module", "op", "time", "rate"),
        (("jit_f", "", "3 ms", "1 FLOP/s"), ("jit_f", "dot.1", "2 ms", ""), ("g", "b", "", "")),
        (False, False, True, True),
    )
    lines = lines_of(grouped, 20)
    assert [line.split()[0] for line in lines[lines.index("") + 3 :][:3]] == ["jit_f", "dot.1", "b"]


def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut():
    for width in range(30, 140, 3):
        lines = lines_of(CELLS, width)
        assert max(map(len, lines)) <= width, width
        for number in ("1 ms", "10.5 ms", "9.1 %", "90.9 %"):
            assert any(number in line for line in lines), width


@pytest.mark.parametrize("width", [30, 60, 1_000_000])
def test_no_character_of_a_name_is_lost(width):
    wide = TextTable(("名前", "n"), (("畳み込み" * 8, "1"), ("b", "2")), (False, True))
    assert "".join(lines_of(wide, width)).count("み込み") >= 7


def test_a_table_without_rows_has_its_titles():
    empty = TextTable(("op", "share"), (), (False, True))
    assert lines_of(empty, 80)[0].split() == ["op", "share"]
    assert lines_of(empty, 5)


def test_cells_have_units_and_whole_names():
    title, head, _, matmul, long, *_ = shown("ops", OPS, 1)
    assert title == "ops of a step"
    assert head.split("  ")[0] == "op"
    assert matmul.split() == ["MatMul", "1.5", "ms", "2", "no", "50", "%", "1,234"]
    assert long.split() == ["x" * 100, "1", "yes", "<0.0001", "%", "0.125"]


@pytest.mark.parametrize(
    ("verbosity", "n_shown", "said"),
    [(0, 5, "and 7 more (-v shows more)"), (1, 8, "and 4 more")],
)
def test_a_table_says_how_much_of_it_is_not_shown(verbosity, n_shown, said):
    _, _, _, *rows, more = shown("ops", OPS, verbosity)
    assert (len(rows), more) == (n_shown, said)


def test_a_short_table_has_no_count():
    assert len(shown("a", Table.of("t", [Column("a", "a")], [("b",)]))) == 4


@pytest.mark.parametrize(
    ("key", "title"),
    [("host_ops", "share of its side"), ("op_profile", "share of device time"), ("other", "share")],
)
def test_a_share_says_of_what(key, title):
    table = Table.of("t", [Column("op", "op"), Column("share", "share", "0..1")], [("a", 0.5)])
    assert shown(key, table)[1].split("  ")[-1] == title


def test_a_column_without_cells_is_left_out():
    table = Table.of("t", [Column("op", "op"), Column("x", "empty", "s")], [("a", None)])
    assert shown("t", table)[1] == "op"


def test_an_input_pipeline_is_a_tree():
    stages = Table.of(
        "input pipeline",
        [Column("stage", "stage"), Column("name", "name")],
        [("Prefetch", ""), ("  Map", "load"), ("    TensorSlice", ""), ("  Map", "[b]decode[/b]")],
    )
    assert shown("stages", stages)[3:] == [
        "Prefetch",
        "  Map            load",
        "    TensorSlice",
        "  Map            [b]decode[/b]",
    ]


@pytest.mark.parametrize("key", ["stages", "ops"])
def test_a_name_of_several_lines_is_one_row(key):
    table = Table.of(
        "ops", [Column("stage", "stage"), Column("n", "n", "count")], [("a\n  b", 1), ("c", 2)]
    )
    assert len(shown(key, table, verbosity=1)) == 5
