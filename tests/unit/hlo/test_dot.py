"""Graphs of modules, and calls of a fake Graphviz."""

import re
from dataclasses import replace
from textwrap import dedent

import pytest
from helpers.hlo import module, op, parameters

from pytest_tfperf.errors import ExportError
from pytest_tfperf.hlo import dot
from pytest_tfperf.hlo.dot import dot_of, svg_of

ADD = [*parameters("f32[]", "f32[]"), op("sum", "add", "f32[]", "p0", "p1")]
FUSED = [
    *parameters("f32[8]", "f32[]"),
    op("r", "reduce", "f32[]", "p0", "p1", called=["add"], op_name="loss/Sum"),
]
MAIN = [
    *parameters("f32[8]"),
    op("zero", "constant", "f32[]", constant=0.0),
    op(
        "fusion.1",
        "fusion",
        "f32[]",
        "p0",
        "zero",
        called=["fused"],
        fusion_kind="kLoop",
        op_name="loss/Sum",
    ),
    op("neg", "negate", "f32[]", "fusion.1"),
]
SMALL = module(add=ADD, fused=FUSED, main=MAIN)


def edges(text):
    return {
        match.groups()
        for match in re.finditer(r"^\s*(\w+) -> (\w+)( \[.*\])?;$", text, re.MULTILINE)
    }


def nodes(text):
    """Return the label's lines of each node."""
    found = re.finditer(r'^\s*(n\d+_\d+) \[label="((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    return {name: label.split(r"\n") for name, label in (match.groups() for match in found)}


def test_a_node_is_an_instruction_and_a_fusion_is_a_frame():
    assert nodes(dot_of(SMALL)) == {
        "n1_0": ["parameter(0) p0", "f32[]"],
        "n1_1": ["parameter(1) p1", "f32[]"],
        "n1_2": ["add sum", "f32[]"],
        "n2_0": ["parameter(0) p0", "f32[8]"],
        "n2_1": ["parameter(1) p1", "f32[]"],
        "n2_2": ["reduce r", "f32[]", "loss/Sum"],
        "n3_0": ["parameter(0) p0", "f32[8]"],
        "n3_1": ["constant(0) zero", "f32[]"],
        "n3_3": ["negate neg", "f32[]"],
    }


def test_edges_go_into_a_fusion_and_out_of_its_root():
    assert edges(dot_of(SMALL)) == {
        ("n1_0", "n1_2", None),
        ("n1_1", "n1_2", None),
        ("n2_0", "n2_2", None),
        ("n2_1", "n2_2", None),
        ("n3_0", "n2_0", None),
        ("n3_1", "n2_1", None),
        ("n2_2", "n3_3", None),
        ("n1_2", "n2_2", ' [style=dashed, ltail=cluster_1, label="to_apply"]'),
    }


def test_frames_are_nested_like_the_computations():
    frames = re.findall(
        r'^( *)subgraph cluster_(\d) \{\n *label="(.*?)"', dot_of(SMALL), re.MULTILINE
    )
    assert frames == [
        ("  ", "1", "add"),
        ("  ", "3", "ENTRY main"),
        ("    ", "2", r"fusion fusion.1 kLoop\nloss/Sum"),
    ]


def test_a_computation_that_two_fusions_share_is_drawn_once():
    main = [
        *parameters("f32[]"),
        *(op(name, "fusion", "f32[]", "p0", "p0", called=["add"]) for name in "ab"),
        op("t", "add", "f32[]", "a", "b"),
    ]
    text = dot_of(module(add=ADD, main=main))
    assert {"n2_1", "n2_2"} < set(nodes(text))
    dashed = ' [style=dashed, ltail=cluster_1, label="calls"]'
    assert {("n1_2", "n2_1", dashed), ("n1_2", "n2_2", dashed), ("n2_1", "n2_3", None)} < edges(
        text
    )


def test_a_fusion_within_a_fusion():
    inner = [*parameters("f32[]"), op("n", "negate", "f32[]", "p0")]
    outer = [*parameters("f32[]"), op("f", "fusion", "f32[]", "p0", called=["inner"])]
    main = [
        *parameters("f32[]"),
        op("g", "fusion", "f32[]", "p0", called=["outer"]),
        op("a", "abs", "f32[]", "g"),
    ]
    assert edges(dot_of(module(inner=inner, outer=outer, main=main))) == {
        ("n1_0", "n1_1", None),
        ("n2_0", "n1_0", None),
        ("n3_0", "n2_0", None),
        ("n1_1", "n3_2", None),
    }


def test_the_computations_of_a_loop_have_their_own_frames():
    part = [*parameters("s32[]"), op("n", "negate", "s32[]", "p0")]
    main = [*parameters("s32[]"), op("w", "while", "s32[]", "p0", called=["body", "test"])]
    found = edges(dot_of(module(body=part, test=part, main=main)))
    assert {
        ("n1_1", "n3_1", ' [style=dashed, ltail=cluster_1, label="body"]'),
        ("n2_1", "n3_1", ' [style=dashed, ltail=cluster_2, label="condition"]'),
    } < found


def test_a_long_op_name_shows_both_ends():
    made = module(main=[op("a", "iota", "f32[8]", op_name=f"model/{'x' * 80}/MatMul")])
    assert nodes(dot_of(made))["n1_0"][2] == f"model/{'x' * 13}…{'x' * 33}/MatMul"
    assert "model/xxx" in dot_of(made)  # in the tooltip


def test_long_lines_and_tooltips_are_cut():
    made = module(
        main=[
            op(
                "a" * 9000,
                "iota",
                f"({', '.join(['f32[8,4]'] * 5000)})",
                op_name="&" * 9000,
                source_file='"' * 9000,
            )
        ]
    )
    text = dot_of(made)
    assert nodes(text)["n1_0"][0] == f"iota {'a' * 14}…{'a' * 40}"
    assert nodes(text)["n1_0"][1] == "(f32[8,4], f32[8,4]…" + " f32[8,4]," * 3 + " f32[8,4])"
    assert max(map(len, re.findall(r'"(?:[^"\\]|\\.)*"', text))) < 16384


def test_texts_are_escaped_for_dot():
    for name, written in [
        ('a "b" c', r"a \"b\" c"),
        ("back\\slash", r"back\\slash"),
        (r"\N \G \n \l", r"\\N \\G \\n \\l"),
        ("trailing\\", r"trailing\\"),
        ('\\"', r"\\\""),
        ("<b>x</b>", "<b>x</b>"),
        ("&lt; & &amp;", "&amp;lt; &amp; &amp;amp;"),
        ("{a|b}", "{a|b}"),
        ("é — 模型", "é — 模型"),
        ("tab\there", "tab here"),
        ("two\nlines", "two lines"),
    ]:
        made = replace(module(main=[op(name, "iota", "f32[8]", op_name=name)]), name=name)
        graph, *lines = dot_of(made).splitlines()
        (node,) = (line.strip() for line in lines if "n1_0" in line)
        assert graph == f'digraph "{written}" {{', name
        assert node.startswith(
            rf'n1_0 [label="iota {written}\nf32[8]\n{written}", tooltip="ROOT %{written} = f32[8] iota(), '
        ), written


def test_the_whole_text_of_a_small_graph():
    made = module(
        main=[
            *parameters("f32[8]"),
            op("zero", "constant", "f32[8]", constant=0.0),
            op("s", "add", "f32[8]", "p0", "zero", op_name="a/b"),
        ]
    )
    assert dot_of(made) == dedent(r"""
        digraph "m" {
          compound=true; rankdir=TB; newrank=true;
          graph [fontname="Helvetica", fontsize=11, style="rounded,filled"];
          node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10, margin="0.1,0.05"];
          edge [color="#777777", arrowsize=0.6, fontname="Helvetica", fontsize=9];
          subgraph cluster_1 {
            label="ENTRY main"; fillcolor="#fcfcfc"; color="#bbbbbb";
            n1_0 [label="parameter(0) p0\nf32[8]", tooltip="%p0 = f32[8] parameter(0)", fillcolor="#f7f7f7", color="#999999", fontcolor="#666666", penwidth=1];
            n1_1 [label="constant(0) zero\nf32[8]", tooltip="%zero = f32[8] constant(0)", fillcolor="#f7f7f7", color="#999999", fontcolor="#666666", penwidth=1];
            n1_2 [label="add s\nf32[8]\na/b", tooltip="ROOT %s = f32[8] add(%p0, %zero), metadata={op_name=\"a/b\"}", fillcolor="#ffffff", color="#555555", fontcolor="#000000", penwidth=2];
          }
          n1_0 -> n1_2;
          n1_1 -> n1_2;
        }
        """).removeprefix("\n")


def test_graphviz_is_called_for_svg(fake_graphviz):
    folder = fake_graphviz(
        'printf "%s" "$*" >"$0.arguments"; cat >"$0.text"; printf "<svg>\\351</svg>"; echo warning >&2'
    )
    text = dot_of(module(main=[op("é — 模型", "iota", "f32[8]")]))
    assert svg_of(text) == b"<svg>\xe9</svg>"
    assert (folder / "dot.arguments").read_text() == "-Tsvg"
    assert (folder / "dot.text").read_bytes() == text.encode()


def test_missing_graphviz_raises_an_export_error(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ExportError, match=re.escape("needs Graphviz's dot in PATH; write a .dot file instead")
    ):
        svg_of("digraph {}")


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        (
            "echo 'no font' >&2; echo '<svg'; exit 3",
            30,
            "Graphviz's dot failed: no font; write a .dot file instead",
        ),
        ("kill -9 $$", 30, "Graphviz's dot failed: its exit status is -9; write"),
        (
            "exec sleep 60",
            0.05,
            "takes longer than 0.05 s for this module; write a .dot or .txt file instead",
        ),
    ],
)
def test_failing_graphviz_raises_an_export_error(
    monkeypatch, fake_graphviz, script, seconds, words
):
    fake_graphviz(script)
    monkeypatch.setattr(dot, "_DOT_SECONDS", seconds)
    with pytest.raises(ExportError, match=re.escape(words)):
        svg_of("digraph {}")
