"""A profile is what independent analyses find in the evidence."""

import json
import random
from collections import Counter

from helpers.traces import SYNTHETIC

from pytest_tfperf.errors import TraceError
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.metric_registry import LOWER, METRICS, PROGRAM, Metric
from pytest_tfperf.metrics import profile
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.recording import Asked, Recording
from pytest_tfperf.trace.xspace import read_trace
from pytest_tfperf.values import Source, Value

BARE = Recording(name="", trace=None, workload={}, bare=True)
DRIVEN = Recording(
    name="step",
    trace=None,
    workload={"batch": None},
    blocks=tuple((1.0 + 0.01 * n, 10) for n in range(12)),
    step_seconds=tuple(0.1 + 0.001 * n for n in range(120)),
    n_steps=30,
    compiled=("f", "g"),
    traced=(FunctionTrace("f", 3),),
    eager=(("MatMul", "model.py:3", 2),),
    settled=False,
    instrumented=True,
)
ASKED = Asked(ignore_findings=("layout-1",))
TRACES = sorted(SYNTHETIC.glob("*.pb"))


def evidence_of(path, recording):
    trace = read_trace(path)
    return Evidence(recording, trace, trace, asked=ASKED)


def outcome(path):
    """The profile of a trace, or the reason why it has no step."""
    try:
        return profile.profile_of(evidence_of(path, DRIVEN))
    except TraceError as error:
        return str(error)


def test_every_metric_is_produced_by_exactly_one_analysis():
    recordings = {"bare": BARE, "driven": DRIVEN}
    for case, recording in recordings.items():
        for traced in [True, False]:
            evidence = (
                evidence_of(TRACES[0], recording) if traced else Evidence(recording, asked=ASKED)
            )
            findings = [analyse(evidence) for analyse in profile.ANALYSES]
            produced = Counter(name for found in findings for name in found.values)
            assert produced == Counter(list(METRICS)), (case, traced)
            tables = Counter(key for found in findings for key in found.tables)
            assert max(tables.values(), default=1) == 1, (case, traced)


def test_the_order_of_analyses_does_not_matter(monkeypatch):
    analyses = profile.ANALYSES
    for seed, path in enumerate(TRACES):
        monkeypatch.setattr(profile, "ANALYSES", analyses)
        expected = outcome(path)
        shuffled = random.Random(seed).sample(analyses, len(analyses))
        monkeypatch.setattr(profile, "ANALYSES", tuple(shuffled))
        assert outcome(path) == expected, path.name


def test_the_order_of_analyses_does_not_matter_without_a_trace(monkeypatch):
    expected = profile.profile_of(Evidence(DRIVEN, asked=ASKED))
    monkeypatch.setattr(profile, "ANALYSES", profile.ANALYSES[::-1])
    assert profile.profile_of(Evidence(DRIVEN, asked=ASKED)) == expected


def test_a_metric_is_added_with_one_row_and_one_analysis(monkeypatch):
    row = Metric("long_steps", COUNT, LOWER, PROGRAM, "steps of more than a second")

    def analyse(evidence):
        long = int((evidence.steps.period_ps > 1e12).sum())
        return Findings(values={"long_steps": Value.of("long_steps", long, Source.TRACE)})

    monkeypatch.setitem(METRICS, row.name, row)
    monkeypatch.setattr(profile, "ANALYSES", (*profile.ANALYSES, analyse))
    found = profile.profile_of(evidence_of(TRACES[0], BARE))
    assert found.long_steps == 0
    assert json.loads(json.dumps(found.to_json()))["metrics"]["long_steps"]["value"] == 0


def test_facts_are_computed_once():
    evidence = evidence_of(TRACES[0], BARE)
    assert evidence.steps is evidence.steps
    assert evidence.breakdown is evidence.breakdown
    assert evidence.late is evidence.late


def test_analyses_of_an_ended_recording_say_why():
    ended = Recording(name="", trace=None, workload={}, ended="the loop was left")
    values = profile.profile_of(Evidence(ended)).metrics
    assert {values[name].why for name in ("input_bound", "flops", "step_skew", "fusions")} == {
        "the loop was left"
    }
    values = profile.profile_of(Evidence(Recording(name="", trace=None, workload={}))).metrics
    assert values["input_bound"].why == "nothing was traced"
