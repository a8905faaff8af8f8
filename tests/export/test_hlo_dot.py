"""Modules as graphs: their structure by hand, and what Graphviz makes of them where it is installed."""

import re
import shutil
from xml.etree import ElementTree

import pytest
from hlo import module, op, parameters

from pytest_tfperf.errors import ExportError
from pytest_tfperf.export import hlo_dot
from pytest_tfperf.export.hlo_dot import dot_of, svg_of

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")

ADD = [*parameters("f32[]", "f32[]"), op("sum", "add", "f32[]", "p0", "p1")]
FUSED = [*parameters("f32[8]", "f32[]"), op("r", "reduce", "f32[]", "p0", "p1", called=["add"], op_name="loss/Sum")]
MAIN = [
    *parameters("f32[8]"),
    op("zero", "constant", "f32[]", constant=0.0),
    op("fusion.1", "fusion", "f32[]", "p0", "zero", called=["fused"], fusion_kind="kLoop", op_name="loss/Sum"),
    op("neg", "negate", "f32[]", "fusion.1"),
]
SMALL = module(add=ADD, fused=FUSED, main=MAIN)


def edges(text):
    return {match.groups() for match in re.finditer(r"^\s*(\w+) -> (\w+)( \[.*\])?;$", text, re.MULTILINE)}


def nodes(text):
    """The label's lines of each node."""
    found = re.finditer(r'^\s*(n\d+_\d+) \[label="((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    return {name: label.split(r"\n") for name, label in (match.groups() for match in found)}


def test_a_node_is_an_instruction_and_a_fusion_is_a_frame():
    assert nodes(dot_of(SMALL)) == {
        "n1_0": ["parameter(0) p0", "f32[]"], "n1_1": ["parameter(1) p1", "f32[]"], "n1_2": ["add sum", "f32[]"],
        "n2_0": ["parameter(0) p0", "f32[8]"], "n2_1": ["parameter(1) p1", "f32[]"], "n2_2": ["reduce r", "f32[]", "loss/Sum"],
        "n3_0": ["parameter(0) p0", "f32[8]"], "n3_1": ["constant(0) zero", "f32[]"], "n3_3": ["negate neg", "f32[]"],
    }  # fmt: skip


def test_edges_go_into_a_fusion_and_out_of_its_root():
    assert edges(dot_of(SMALL)) == {
        ("n1_0", "n1_2", None), ("n1_1", "n1_2", None), ("n2_0", "n2_2", None), ("n2_1", "n2_2", None), ("n3_0", "n2_0", None),
        ("n3_1", "n2_1", None), ("n2_2", "n3_3", None), ("n1_2", "n2_2", ' [style=dashed, ltail=cluster_1, label="to_apply"]'),
    }  # fmt: skip


def test_frames_lie_in_each_other_as_the_computations_do():
    frames = re.findall(r'^( *)subgraph cluster_(\d) \{\n *label="(.*?)"', dot_of(SMALL), re.MULTILINE)
    assert frames == [("  ", "1", "add"), ("  ", "3", "ENTRY main"), ("    ", "2", r"fusion fusion.1 kLoop\nloss/Sum")]


def test_a_computation_that_two_fusions_share_is_drawn_once():
    main = [
        *parameters("f32[]"),
        *(op(name, "fusion", "f32[]", "p0", "p0", called=["add"]) for name in "ab"),
        op("t", "add", "f32[]", "a", "b"),
    ]
    text = dot_of(module(add=ADD, main=main))
    assert {"n2_1", "n2_2"} < set(nodes(text))
    dashed = ' [style=dashed, ltail=cluster_1, label="calls"]'
    assert {("n1_2", "n2_1", dashed), ("n1_2", "n2_2", dashed), ("n2_1", "n2_3", None)} < edges(text)


def test_a_fusion_within_a_fusion():
    inner = [*parameters("f32[]"), op("n", "negate", "f32[]", "p0")]
    outer = [*parameters("f32[]"), op("f", "fusion", "f32[]", "p0", called=["inner"])]
    main = [*parameters("f32[]"), op("g", "fusion", "f32[]", "p0", called=["outer"]), op("a", "abs", "f32[]", "g")]
    assert edges(dot_of(module(inner=inner, outer=outer, main=main))) == {
        ("n1_0", "n1_1", None), ("n2_0", "n1_0", None), ("n3_0", "n2_0", None), ("n1_1", "n3_2", None),
    }  # fmt: skip


def test_a_loop_s_computations_are_frames_of_their_own():
    part = [*parameters("s32[]"), op("n", "negate", "s32[]", "p0")]
    main = [*parameters("s32[]"), op("w", "while", "s32[]", "p0", called=["body", "test"])]
    found = edges(dot_of(module(body=part, test=part, main=main)))
    assert {
        ("n1_1", "n3_1", ' [style=dashed, ltail=cluster_1, label="body"]'),
        ("n2_1", "n3_1", ' [style=dashed, ltail=cluster_2, label="condition"]'),
    } < found  # fmt: skip


def test_what_only_names_or_gives_values_is_quieter():
    text = dot_of(SMALL)
    colours = {match[1]: match[2] for match in re.finditer(r'(n\d_\d) .*? fontcolor="(\S+)"', text)}
    assert {name for name, colour in colours.items() if colour == "#666666"} == {"n1_0", "n1_1", "n2_0", "n2_1", "n3_0", "n3_1"}


def test_a_long_op_name_shows_its_end():
    made = module(main=[op("a", "iota", "f32[8]", op_name=f"model/{'x' * 80}/MatMul")])
    assert nodes(dot_of(made))["n1_0"][2] == "…" + "x" * 52 + "/MatMul"
    assert "model/xxx" in dot_of(made)  # where the pointer stays


def test_lines_and_tips_are_cut_before_they_are_too_long_for_graphviz():
    made = module(main=[op("a" * 9000, "iota", f"({', '.join(['f32[8,4]'] * 5000)})", op_name="&" * 9000, source_file='"' * 9000)])
    text = dot_of(made)
    assert nodes(text)["n1_0"][0] == f"iota {'a' * 54}…"
    assert nodes(text)["n1_0"][1] == "(" + "f32[8,4], " * 5 + "/*index=…"
    assert max(map(len, re.findall(r'"(?:[^"\\]|\\.)*"', text))) < 16384


ODD = ['a "b" c', "back\\slash", r"\N \G \n \l", "trailing\\", "<b>x</b>", "&lt; & &amp;", "{a|b}", "é — 模型", "tab\there"]


@needs_dot
@pytest.mark.parametrize("name", ODD)
def test_graphviz_shows_any_text_as_it_is(name):
    made = module(main=[op(name, "iota", "f32[8]", op_name=name)])
    picture = ElementTree.fromstring(svg_of(dot_of(made)))
    shown = ["".join(part.itertext()) for part in picture.iter("{http://www.w3.org/2000/svg}text")]
    expected = name.replace("\t", " ")
    assert shown == ["ENTRY main", f"iota {expected}", "f32[8]", expected]
    tips = [part.get("{http://www.w3.org/1999/xlink}title") for part in picture.iter("{http://www.w3.org/2000/svg}a")]
    if r"\N" not in name:  # in a tip Graphviz 2 replaces it, however it is escaped
        assert any(tip.startswith(f"ROOT %{expected} = f32[8] iota()") for tip in tips)


@needs_dot
def test_graphviz_draws_every_node_frame_and_edge():
    text = dot_of(SMALL)
    picture = ElementTree.fromstring(svg_of(text))
    drawn = [part.get("class") for part in picture.iter("{http://www.w3.org/2000/svg}g")]
    assert {kind: drawn.count(kind) for kind in ("node", "cluster", "edge")} == {"node": 9, "cluster": 3, "edge": 8}


def test_without_graphviz_there_is_no_svg(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExportError, match=re.escape("needs Graphviz's dot in PATH; write a .dot file instead")):
        svg_of("digraph {}")


@pytest.mark.parametrize(
    ("script", "words"), [("echo 'no font' >&2; exit 3", "Graphviz's dot failed: no font"), ("exec sleep 60", "takes longer than 0.05 s")]
)
def test_a_graphviz_that_fails_is_said(monkeypatch, tmp_path, script, words):
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(hlo_dot.shutil, "which", lambda name: str(program))
    monkeypatch.setattr(hlo_dot, "_DOT_SECONDS", 0.05 if "sleep" in script else 30)
    with pytest.raises(ExportError, match=re.escape(words)):
        svg_of("digraph {}")
