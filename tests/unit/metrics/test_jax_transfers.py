"""Transfers of steps of JAX on a CPU, counted by hand; what a trace may leave out is unknown."""

from dataclasses import replace

import pytest
from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.copies import analyse
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import UNSEEN, PythonCalls, PythonFunction, Recording
from pytest_tfperf.trace.xspace import HOST, decode_trace
from pytest_tfperf.values import Unknown

CALL = at("PjitFunction(f)", 1, 3)
RUN = at("dot.1", 5, 6, hlo_module="jit_f", hlo_op="dot.1", run_id=1, program_id=1)
PUT, EXPLICIT = at("DevicePut", 1.5, 2), at("DevicePutWithSharding", 13, 14)
READ = at("np.asarray(jax.Array)", 6, 7)


COUNTED = PythonCalls(steps=((0, 1),), functions=())


def calling(**functions):
    """The Python functions of JAX that a step calls, as often as they say."""
    files = {"_item": "jax/_src/numpy/array_methods.py", "__array__": "jax/_src/array.py"}
    found = [
        PythonFunction(name=f"{files[name]}:Array.{name}", line=1, calls=calls, self_s=0.0)
        for name, calls in functions.items()
    ]
    return PythonCalls(steps=((9, 1),), functions=tuple(found))


def copies(*events, bare=False, gpu=False, python_calls=COUNTED):
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    host = plane(HOST, line("marks", *marks), line("python", *events), line("worker", RUN))
    devices = [plane("/device:GPU:0", line("Stream #1", at("k", 1, 2)))] if gpu else []
    recording = Recording(
        name="",
        trace=None,
        workload={},
        framework="JAX",
        bare=bare,
        python_calls=python_calls,
    )
    found = analyse(Evidence(recording, decode_trace(space(host, *devices))))
    return found.values["host_device_copies"], found.values["host_device_bytes"]


def test_steps_without_a_transfer_have_zero():
    assert [value.number for value in copies(CALL)] == [0, 0]


def test_steps_of_jax_that_only_pass_arrays_are_jax_s_whatever_the_trace_shows():
    assert copies(PUT)[0].high() == 1


def test_puts_and_reads_count_in_their_step():
    count, size = copies(CALL, PUT, READ, EXPLICIT)
    assert (count.low(), count.high()) == (1, 2)
    assert "how large the 3 arrays" in size.why
    assert count.detail["where"] == (
        "to and from devices: arguments of f ×0.50, other arrays put ×0.50, read by Python ×0.50"
    )
    assert count.detail["try"].count(";") == 1


def test_items_that_the_trace_does_not_show_are_counted_in_python():
    count, size = copies(CALL, PUT, python_calls=calling(_item=2.0))
    assert (count.low(), count.high()) == (2, 3)
    assert "read by Python ×2" in count.detail["where"]
    assert "how large the 5 arrays" in size.why
    assert copies(CALL, READ, python_calls=calling(__array__=1.0))[0].high() == 1


def test_items_that_may_have_been_read_unseen_are_unknown():
    cases = [
        (UNSEEN, "counted did not run"),
        (Unknown("another profiler is set"), "did not run: another profiler is set"),
        (calling(_item=1 / 3), "steps differ in their calls"),
        (replace(calling(_item=1.0), steps=((9, 1), (3, 1))), "steps differ in their calls"),
        (calling(_item=1.0, __array__=1.0), "several devices"),
    ]
    for python_calls, why in cases:
        for value in copies(CALL, python_calls=python_calls):
            assert why in value.why, why
    assert copies(CALL, PUT, bare=True, python_calls=UNSEEN)[0].high() == 1  # by the trace alone


@pytest.mark.parametrize("name", ["CopyToMemorySpace", "TfrtCpuBuffer::CopyToDevice"])
def test_a_copy_between_devices_is_no_transfer_from_the_host(name):
    assert copies(CALL, EXPLICIT, at(name, 13.1, 13.2))[0].number == 0
    assert copies(CALL, EXPLICIT, at(name, 14.1, 14.2))[0].high() == 1  # not in it


def test_transfers_outside_the_steps_do_not_count():
    """Between two steps of an epoch is the period of the first."""
    assert copies(CALL, at("DevicePut", 9.2, 9.4))[0].high() == 1
    count, _ = copies(CALL, at("DevicePut", 19.2, 19.4), at("np.asarray(jax.Array)", 21, 22))
    assert count.number == 0


def test_a_trace_of_an_unknown_version_shows_them_only_by_one():
    assert "does not tell whether its version has them" in copies(CALL, bare=True)[0].why
    outside = at("DevicePut", 21, 22)
    assert copies(CALL, outside, bare=True)[0].number == 0
    assert copies(CALL, PUT, bare=True)[0].high() == 1


def test_a_gpu_shows_its_own_copies():
    assert copies(CALL, PUT, gpu=True)[0].number == 0
