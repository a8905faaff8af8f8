"""Expensive analyses run when somebody asks for their findings, and not before."""

import functools
import json
from dataclasses import replace

import pytest
from helpers.traces import SYNTHETIC
from helpers.xspace import at, line, plane, space

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.graphs import OpNode, StepGraph
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics import profile
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import NOT_COMPUTED, Expensive, OnDemand, extended, so_far
from pytest_tfperf.recording import Asked, Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.trace.xspace import decode_trace, read_trace
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

RECORDING = Recording(name="step", trace=None, workload={})
ASKED = Asked(ignore_findings=("TPU_OPS",))
DEAR = [analysis for analysis in profile.ANALYSES if isinstance(analysis, Expensive)]
DEAR_METRICS = {name for analysis in DEAR for name in analysis.metrics}
COLUMNS = (Column("a", "a"),)


class Code:
    """The code of a step, which notes what is read of it."""

    step_kinds = ()
    lowering_notes = ("1 of 3 traced steps calls other functions",)

    def __init__(self):
        self.read = []

    @property
    def lowered(self):
        self.read.append("lowered")
        return ()

    @property
    def graph(self):
        self.read.append("graph")
        return StepGraph(before={"Mul": 4}, after={"Mul": 3})

    @property
    def ops(self):
        self.read.append("ops")
        return (OpNode(name="x", op_type="AddV2"),)

    def places(self, names):
        return {}

    @property
    def grappler(self):
        self.read.append("grappler")
        return {"": 3, "remapping": 5}


TRACE = read_trace(SYNTHETIC / "c1_cpu_basic.xplane.pb")


def evidence_of(code):
    return Evidence(RECORDING, TRACE, None, code, asked=ASKED)


def waiting(asked=()):
    """A profile for which only what is asked for is computed, its code, and its demands."""
    code = Code()
    on_demand = OnDemand(asked, lambda: evidence_of(code))
    return profile.profile_of(evidence_of(code), on_demand), code, on_demand


@functools.cache
def whole():
    return profile.profile_of(evidence_of(Code()))


def test_what_nobody_asks_for_is_not_computed():
    found, code, _ = waiting()
    known = so_far(found)
    assert code.read == []
    assert {known.metrics[name].why for name in DEAR_METRICS} == {NOT_COMPUTED}
    assert set(known.metrics) == set(METRICS)
    assert "optimizers" not in known.tables
    assert known.value("step_time") == whole().value("step_time")


def test_the_reason_of_a_value_does_not_depend_on_when_it_is_read():
    calls = at("EagerExecute", 1, 2, eager_op="f", is_func=1)
    marks = at("step", 0, 9, step_num=1, _r=1, tfperf=1)
    spaces = [
        space(plane("/host:CPU", line("python", marks, *events)), errors=errors)
        for events, errors in ([(), ()], [[calls], ()], [(), ["a buffer was full"]])
    ]
    recordings = [replace(RECORDING, framework="PyTorch"), replace(RECORDING, beside=("JAX",))]
    evidences = [Evidence(recording, None, None, Code(), asked=ASKED) for recording in recordings]
    evidences += [
        Evidence(RECORDING, decode_trace(each), None, Code(), asked=ASKED) for each in spaces
    ]
    for evidence in evidences:
        late = profile.profile_of(evidence, OnDemand((), lambda evidence=evidence: evidence))
        now = profile.profile_of(evidence)
        for name in METRICS:
            assert late.metrics[name] == now.metrics[name], name


def test_asking_for_names_computes_nothing():
    found, code, _ = waiting()
    assert {"flops", "step_time", "graph_ops"} <= {*dir(found)}
    assert not hasattr(found, "graph_opps")
    with pytest.raises(UnknownMetric, match="did you mean 'graph_ops'"):
        found.value("graph_opps")
    assert code.read == []


def test_a_dear_metric_is_computed_when_it_is_read():
    for name in sorted(DEAR_METRICS):
        found, code, _ = waiting()
        assert found.value(name) == whole().value(name), name
        assert code.read, name
        read = list(code.read)
        found.value(name)
        assert code.read == read, name


def test_an_attribute_gives_the_number_or_the_reason():
    found, _, _ = waiting()
    with pytest.raises(UnknownMetric, match="half_precision is unknown: the step has no matrix"):
        _ = found.half_precision
    assert found.flops == 0


def test_a_dear_table_is_computed_when_it_is_read_or_looked_for():
    found, code, _ = waiting()
    assert found.tables["optimizers"] == whole().tables["optimizers"]
    assert set(code.read) == {"grappler"}
    assert found.tables.get("padding") is None
    with pytest.raises(KeyError):
        found.tables["no such table"]


def test_one_dear_analysis_does_not_run_another():
    found, code, _ = waiting()
    found.value("op_guide_findings")
    assert set(code.read) == {"lowered", "graph"}
    assert so_far(found).metrics["flops"].why == NOT_COMPUTED


def test_what_a_limit_asks_for_is_there_at_once():
    cases = [
        ({"flops"}, {"lowered"}),
        ({"half_precision", "xla_launches"}, {"lowered"}),
        ({"op_guide_findings"}, {"lowered", "graph"}),
        ({"padding_overhead"}, {"lowered"}),
        ({"optimizers"}, {"grappler"}),
        ({"xla_coverage"}, {"graph"}),
        ({"step_time", "device_busy"}, set()),
    ]
    for asked, read in cases:
        found, code, _ = waiting(asked)
        assert set(code.read) == read, asked
        for name in asked & set(METRICS):
            assert so_far(found).metrics[name] == whole().metrics[name], asked


def test_a_profile_of_which_all_is_read_is_the_same_as_one_of_all_analyses():
    found, _, _ = waiting()
    assert json.loads(json.dumps(found.to_json()))["metrics"] == whole().to_json()["metrics"]
    assert dict(found.tables) == dict(whole().tables)
    assert len(found.metrics) == len(METRICS)
    everything, _, _ = waiting({*METRICS, *(key for one in DEAR for key in one.tables)})
    assert so_far(everything) == whole()


def test_notes_on_the_code_come_with_the_analysis_that_needs_them():
    assert Code.lowering_notes[0] in whole().notes
    assert Code.lowering_notes[0] not in waiting()[0].notes
    assert Code.lowering_notes[0] in waiting({"flops"})[0].notes


def test_after_its_end_a_profile_has_what_was_computed():
    found, code, on_demand = waiting()
    assert found.flops == 0
    on_demand.close()
    read = list(code.read)
    assert found.flops == 0
    assert found.value("op_guide_findings").why == NOT_COMPUTED
    assert "op_guide" not in found.tables
    assert code.read == read
    assert NOT_COMPUTED in json.dumps(found.to_json())


def test_adding_to_a_profile_computes_nothing():
    found, code, _ = waiting()
    table = Table.of("mine", COLUMNS, [("x",)])
    value = Value(number=1.0, unit="count", source=Source.OWN)
    more = replace(
        found,
        tables=extended(found.tables, {"mine": table}),
        metrics=extended(found.metrics, {"own": value}),
    )
    assert code.read == []
    assert so_far(more).tables["mine"] == table
    assert more.value("own") == value
    assert more.flops == 0
    assert "own" in more.metrics
    assert "own" not in found.metrics
    plain = Profile(name="", metrics={})
    assert extended(plain.tables, {"mine": table}) == {"mine": table}
    assert so_far(plain) == plain


def test_every_dear_analysis_declares_what_it_finds():
    for analysis in DEAR:
        findings = analysis(evidence_of(Code()))
        assert set(findings.values) == set(analysis.metrics)
        assert set(findings.tables) <= set(analysis.tables)
        assert set(analysis.left_out().values) == set(analysis.metrics)


def test_an_incomplete_trace_makes_dear_metrics_unknown_too():
    evidence = Evidence(RECORDING, replace(TRACE, errors=("lost",)), None, Code(), asked=ASKED)
    found = profile.profile_of(evidence, OnDemand((), lambda: evidence))
    expected = profile.profile_of(evidence)
    assert {name: found.value(name) for name in DEAR_METRICS} == {
        name: expected.value(name) for name in DEAR_METRICS
    }


def test_code_of_a_recording_is_that_in_it():
    recording = replace(RECORDING, lowered=Unknown("too large"))
    assert Evidence(recording).code.lowered == Unknown("too large")
