"""What Graphviz itself makes of our graphs: it is another program, which no machine has to have, so that only the nightly tests ask for it."""

import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from helpers.hlo import module, op, parameters

from pytest_tfperf.hlo.dot import dot_of, svg_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("processes"),
    pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed"),
]

ODD = [
    'a "b" c',
    "back\\slash",
    r"\N \G \n \l",
    "trailing\\",
    "<b>x</b>",
    "&lt; & &amp;",
    "{a|b}",
    "é — 模型",
    "tab\there",
    '\\"',
]


def test_graphviz_shows_any_text_as_it_is():
    for name in ODD:
        made = replace(module(main=[op(name, "iota", "f32[8]", op_name=name)]), name=name)
        picture = ElementTree.fromstring(svg_of(dot_of(made)))
        texts = picture.iter("{http://www.w3.org/2000/svg}text")
        shown = ["".join(part.itertext()) for part in texts]
        expected = name.replace("\t", " ")
        assert shown == ["ENTRY main", f"iota {expected}", "f32[8]", expected], name
        tips = [
            part.get("{http://www.w3.org/1999/xlink}title")
            for part in picture.iter("{http://www.w3.org/2000/svg}a")
        ]
        if r"\N" not in name:  # in a tip Graphviz 2 replaces it, however it is escaped
            assert any(tip.startswith(f"ROOT %{expected} = f32[8] iota()") for tip in tips), name


def test_graphviz_draws_every_node_frame_and_edge():
    part = [
        *parameters("s32[]"),
        op("n", "negate", "s32[]", "p0"),
    ]  # in each of three frames two nodes and an edge
    main = [
        *parameters("s32[]"),
        op("loop", "while", "s32[]", "p0", called=["body", "test"]),
        op("f", "fusion", "s32[]", "loop", called=["fused"]),
        op("a", "abs", "s32[]", "f"),
    ]
    picture = ElementTree.fromstring(
        svg_of(dot_of(module(body=part, test=part, fused=part, main=main)))
    )
    drawn = [part.get("class") for part in picture.iter("{http://www.w3.org/2000/svg}g")]
    assert {kind: drawn.count(kind) for kind in ("node", "cluster", "edge")} == {
        "node": 9,
        "cluster": 4,
        "edge": 8,
    }
