"""Metrics about TPUs: left out unless something asks for them, or a TPU ran the step."""

import pytest
from helpers.traces import SYNTHETIC, real_trace

from pytest_tfperf.graphs import StepGraph
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.step_code import analyse_op_guide, analyse_padding
from pytest_tfperf.recording import ALL, Asked, Recording
from pytest_tfperf.trace.xspace import read_trace

RECORDING = Recording(
    name="step", trace=None, workload={}, lowered=(), graph=StepGraph(before={}, after={})
)
CPU = SYNTHETIC / "c1_cpu_basic.xplane.pb"


def asked(*metrics):
    return Asked(metrics=frozenset(metrics))


def found(trace, asked=ALL):
    evidence = Evidence(RECORDING, trace, asked=asked)
    return analyse_padding(evidence).values | analyse_op_guide(evidence).values


@pytest.mark.parametrize("trace", [None, CPU], ids=["no trace", "cpu"])
def test_what_nothing_asks_for_is_left_out_with_the_reason(trace):
    values = found(trace and read_trace(trace), asked())
    assert values.keys() == {"op_guide_findings", "padding_overhead", "mxu_padding_overhead"}
    for value in values.values():
        assert (value.number, value.is_asked) == (None, False)
        assert "it is about TPUs, the step ran on none" in value.why


def test_what_is_asked_for_is_computed_alone():
    values = found(read_trace(CPU), asked("op_guide_findings"))
    assert values["op_guide_findings"].number == 0
    assert not values["padding_overhead"].is_asked
    values = found(read_trace(CPU), asked("mxu_padding_overhead"))
    assert values["padding_overhead"].is_asked  # both are of one analysis
    assert not values["op_guide_findings"].is_asked


def test_of_a_saved_trace_everything_is_asked_for():
    assert all(value.is_asked for value in found(read_trace(CPU)).values())


def test_a_generation_asks_for_all_of_them():
    one = Asked(metrics=frozenset(), tpu="v5e")
    assert all(value.is_asked for value in found(read_trace(CPU), one).values())


def test_a_tpu_asks_for_them():
    values = found(read_trace(real_trace("tpu_v6e_jax_inference")), asked())
    assert all(value.is_asked for value in values.values())
    assert values["padding_overhead"].number is not None
