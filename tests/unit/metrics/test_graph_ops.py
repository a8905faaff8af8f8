"""Metrics of a step's graph, from graphs counted by hand."""

import pytest
from helpers.builders import profile
from helpers.tables import cells

from pytest_tfperf.facts.host_activity import TENSORFLOW
from pytest_tfperf.graphs import GraphOp, StepGraph
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.graph_ops import (
    Outside,
    analyse,
    graph_tables,
    graph_values,
    outside_cause,
    outside_xla,
)
from pytest_tfperf.metrics.step_advice import advise
from pytest_tfperf.op_types import EAGER, NO_KERNEL, PYTHON, TEXT, UNASKED, WHY_OUTSIDE
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import PARTS, Source, Step, Unknown


def outside(*whys):
    return tuple(
        GraphOp(name=f"op_{n}", op_type=f"Type{n}", line=f"model.py:{n}", why=why)
        for n, why in enumerate(whys)
    )


def graph(n_inside=0, outside=(), before=None, after=None, n_clusters=0):
    return StepGraph(
        before=before or {"Const": 1},
        after=after or {"Const": 1},
        inside={"Mul": n_inside} if n_inside else {},
        outside=outside,
        n_clusters=n_clusters,
    )


def coverage(graph, eager=(), n_ran=None):
    return graph_values(graph, eager, n_ran)["xla_coverage"]


def test_ops_are_those_that_are_left_and_the_reduction_is_the_share_that_went():
    values = graph_values(
        graph(before={"MatMul": 3, "Identity": 7}, after={"MatMul": 3, "Const": 1}), (), None
    )
    assert (values["graph_ops"].number, values["graph_ops"].source) == (4.0, Source.GRAPH)
    assert (values["graph_reduction"].number, values["graph_reduction"].source) == (
        0.6,
        Source.GRAPH,
    )
    assert (
        values["graph_ops"].detail["where"]
        == "10 ops before Grappler, 4 after; most: MatMul ×3, Const ×1"
    )


def test_ops_that_grappler_adds_are_said_and_reduce_nothing():
    values = graph_values(
        graph(before={"Conv2D": 2, "Identity": 1}, after={"Conv2D": 2, "Transpose": 4}), (), None
    )
    assert (values["graph_ops"].number, values["graph_reduction"].number) == (6.0, 0.0)
    assert values["graph_reduction"].detail["where"] == "Grappler added 3 ops to 3: Transpose +4"


@pytest.mark.parametrize(
    ("why", "shown"),
    [("the step ended", "the step ended"), ("", "no step was run for the graphs")],
)
def test_without_a_graph_all_is_unknown_with_the_reason(why, shown):
    recording = Recording(
        name="", trace=None, workload={}, framework=TENSORFLOW, graph=Unknown(why)
    )
    found = analyse(Evidence(recording))
    assert {value.why for value in found.values.values()} == {shown}
    assert {value.number for value in found.values.values()} == {None}
    assert found.tables == {}


def test_a_step_without_functions_has_no_graph():
    values = graph_values(StepGraph(before={}, after={}), (), None)
    assert values["graph_ops"].number is None
    assert (
        values["graph_ops"].why
        == values["graph_reduction"].why
        == "the step calls no tf.function, so it has no graph"
    )
    assert values["xla_coverage"].why.startswith("nothing in the step computes")


def test_coverage_is_the_share_of_compute_nodes_in_clusters():
    cases = [
        (graph(2), (), 1.0),
        (graph(2, outside(UNASKED)), (), 2 / 3),
        (graph(outside=outside(UNASKED, UNASKED)), (), 0.0),
        (graph(1), (("Mul", "m.py:1", 3),), 0.25),
        (
            graph(1),
            (
                ("__inference_step_7", "m.py:1", 3),
                ("ReadVariableOp", "m.py:2", 1),
                ("IteratorGetNext", None, 1),
            ),
            1.0,
        ),
    ]
    for given, eager, share in cases:
        assert coverage(given, eager).number == share, (given, eager, share)


def test_coverage_is_unknown_if_fewer_auto_clusters_ran_than_were_made():
    made = graph(7, outside(UNASKED), n_clusters=2)
    for n_ran in (None, 2, 3):  # None: it is not known what ran
        assert coverage(made, n_ran=n_ran).number == 7 / 8, n_ran
    for n_ran, why in ((0, "2 of 2 auto-clusters"), (1, "1 of 2 auto-clusters")):
        value = coverage(made, n_ran=n_ran)
        assert value.number is None, n_ran
        assert value.why.startswith(f"{why} did not run in the traced steps"), n_ran


def test_what_xla_cannot_compile_comes_first_and_then_what_is_most_often():
    ops = (
        *outside(UNASKED, NO_KERNEL, TEXT),
        *outside(UNASKED),
        GraphOp(name="p", op_type="PyFunc", line=None, why=PYTHON),
    )
    found = outside_xla(graph(1, ops), (("Mul", "m.py:1", 2),))
    assert [(one.op_type, one.why, one.n_ops) for one in found] == [
        ("Type2", TEXT, 1),
        ("PyFunc", PYTHON, 1),
        ("Type1", NO_KERNEL, 1),
        ("Mul", EAGER, 2),
        ("Type0", UNASKED, 2),
    ]


def test_the_message_names_five_with_line_and_reason():
    found = [
        Outside("", "EagerPyFunc", "model.py:12", PYTHON, 1),
        *[Outside("", f"Op{n}", None, UNASKED, n) for n in (6, 5, 4, 3, 2, 1)],
    ]
    cause = outside_cause(found, graph(1))
    assert cause["where"] == (
        f"outside XLA: EagerPyFunc ({PYTHON}) at model.py:12; Op6 ×6 ({UNASKED}); Op5 ×5 ({UNASKED}); Op4 ×4 ({UNASKED}); "
        f"Op3 ×3 ({UNASKED}); and 3 more"
    )
    assert "TensorFlow's ops" in cause["try"]


def test_there_is_a_remedy_for_each_reason():
    for why in WHY_OUTSIDE:
        assert outside_cause([Outside("", "Op", None, why, 1)], graph(1))["try"], why


def test_tables():
    given = graph(
        1,
        outside(TEXT, TEXT),
        {"Identity": 7, "MatMul": 3, "Add": 1},
        {"MatMul": 3, "Add": 2},
    )
    tables = graph_tables(given, ())
    assert cells(tables["graph"], "type", "before", "after") == [
        ("Identity", 7, 0),
        ("Add", 1, 2),
        ("MatMul", 3, 3),
    ]
    assert tables["outside_xla"].rows == (
        ("op_0", "Type0", "model.py:0", TEXT, 1),
        ("op_1", "Type1", "model.py:1", TEXT, 1),
    )


def test_a_table_with_nothing_in_it_is_left_out():
    assert set(graph_tables(graph(1), ())) == {"graph"}


def test_advice_speaks_where_xla_compiles_some_of_the_step_but_not_all():
    for n_outside, n_inside, speaks in [(1, 3, True), (0, 3, False), (3, 0, False)]:
        value = coverage(graph(n_inside, outside(*[PYTHON] * n_outside)))
        step = Step(name="train 0", period_s=0.1, parts_s=dict.fromkeys(PARTS, 0.0))
        found = advise(profile(steps=(step,), xla_coverage=value))
        assert [(advice.because, advice.what) for advice in found] == [
            ("xla_coverage is 75 %", value.detail.get("try"))
        ] * speaks, n_outside


def test_compute_nodes_are_told_by_type_inside_and_outside_xla():
    fused = GraphOp(
        name="Relu", op_type="_FusedMatMul", line=None, why=UNASKED, fused=("MatMul", "Relu")
    )
    given = graph(2, (fused, *outside(UNASKED)))
    eager = (("Mul", "m.py:1", 3), ("ReadVariableOp", "m.py:2", 1))
    told = {"inside": {"Mul": 2}, "outside": {"MatMul": 1, "Relu": 1, "Type0": 1, "Mul": 3}}
    assert coverage(given, eager).detail.items() >= told.items()
