"""Copies that steps wait for, and waiting that is none; real ones are in test_real_gpu.py."""

from helpers.traces import SYNTHETIC
from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.trace.xspace import decode_trace, read_trace

MARKS = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(3)]


def waiting(copied_ms):
    """Steps of 10 ms that wait 2 ms for an element, and so long for its copy."""
    waits = [at("IteratorGetNext::python", n * 10, n * 10 + 2) for n in range(3)]
    copies = [at("MemcpyH2D", n * 10 + 3, n * 10 + 3 + copied_ms) for n in range(3)]
    kernels = [at("gemm", n * 10 + 7, n * 10 + 8) for n in range(3)]
    gpu = plane("/device:GPU:0", line("Stream #1(Compute)", *copies, *kernels))
    trace = decode_trace(space(plane("/host:CPU", line("python", *MARKS, *waits)), gpu))
    return analyse_trace(trace).profile.value("input_bound")


def test_copies_that_take_more_than_half_of_the_waiting_are_its_cause():
    assert "copies of the elements" in waiting(2.1).detail["where"]
    assert "copies of the elements" not in waiting(2).detail["where"]  # half of it


def test_a_tpu_that_waits_for_its_infeed_does_not_wait_for_copies():
    trace = read_trace(SYNTHETIC / "t1_tpu_infeed.xplane.pb")
    value = analyse_trace(trace).profile.value("input_bound")
    assert value.number > 0
    assert "copies" not in value.detail["where"]
