import re

import pytest
from xspace import event, field, line, plane, space

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.hlo import buffer_bytes
from pytest_tfperf.trace.xspace import decode_trace


def metadata_plane(protos):
    return plane("/host:metadata", metadata={name: {"Hlo Proto": proto} for name, proto in protos.items()})


def hlo_proto(*sizes):
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloProto()
    message.hlo_module.name = "jit_f"
    message.buffer_assignment.logical_buffers.add(id=1, size=999)
    for index, size in enumerate(sizes):
        message.buffer_assignment.buffer_allocations.add(index=index, size=size, maybe_live_out=True, color=1).assigned.add(size=77)
    return message.SerializeToString()


@pytest.mark.parametrize("sizes", [(), (0,), (4096,), (1, 2, 3), (2**40, 2**33, 127, 128)])
def test_an_executable_needs_the_sum_of_its_allocations(sizes):
    assert buffer_bytes(decode_trace(space(plane("/host:CPU"), metadata_plane({"jit_f(1)": hlo_proto(*sizes)})))) == {
        "jit_f(1)": sum(sizes)
    }


def test_each_executable_is_counted_for_itself():
    assert buffer_bytes(decode_trace(space(metadata_plane({"a": hlo_proto(1, 2), "b": hlo_proto(10)})))) == {"a": 3, "b": 10}


@pytest.mark.parametrize("planes", [[plane("/host:CPU", line("a", event("x", 0, 1)))], [plane("/host:metadata")]])
def test_a_trace_without_executables_has_none(planes):
    assert buffer_bytes(decode_trace(space(*planes))) == {}


@pytest.mark.parametrize("value", [5, "text", 1.5, b""])
def test_a_stat_that_holds_no_proto_counts_nothing(value):
    assert buffer_bytes(decode_trace(space(metadata_plane({"a": value})))) == {"a": 0}


def test_stats_of_other_planes_are_no_executables():
    other = plane("/device:GPU:0", line("a", event("x", 0, 1)), metadata={"x": {"Hlo Proto": hlo_proto(5)}})
    assert buffer_bytes(decode_trace(space(other, metadata_plane({"a": hlo_proto(7)})))) == {"a": 7}


def test_a_damaged_proto_is_an_error():
    damaged = field(3, b"\x1a\x09\x10")
    with pytest.raises(TraceError, match=re.escape("trace some.pb: ") + r"\w+ at byte \d+ of \d+: field 3 needs 9 bytes, 1 are left"):
        buffer_bytes(decode_trace(space(metadata_plane({"a": damaged})), "some.pb"))
