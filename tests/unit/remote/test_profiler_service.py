"""Messages against those of Google's own Protobuf."""

import pytest
from helpers.profiler_server import ProfileRequest, ProfileResponse

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.remote.profiler_service import (
    Destination,
    Response,
    decode_response,
    encode_request,
)
from pytest_tfperf.remote.trace_options import LONGEST_MS, TraceOptions, check_duration


@pytest.mark.parametrize("levels", [(2, 1, 0), (0, 0, 0), (3, 1, 1)])
def test_protobuf_reads_the_request(levels):
    host, device, python = levels
    options = TraceOptions(
        duration_ms=70_000,
        host_tracer_level=host,
        device_tracer_level=device,
        python_tracer_level=python,
    )
    raw = encode_request(options, Destination(repository="/runs ü", run="r" * 200, host="a_1"))
    request = ProfileRequest.FromString(raw)
    assert (request.duration_ms, request.opts.duration_ms) == (70_000, 70_000)
    opts = request.opts
    assert (opts.host_tracer_level, opts.device_tracer_level, opts.python_tracer_level) == levels
    assert opts.version == 1
    assert opts.enable_hlo_proto
    assert opts.include_dataset_ops
    assert request.emit_xspace
    assert request.repository_root == "/runs ü"
    assert (request.session_id, request.host_name) == ("r" * 200, "a_1")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ProfileResponse(xspace=b"abc"), Response(trace=b"abc", is_empty=False)),
        (ProfileResponse(xspace=b"x", empty_trace=True), Response(trace=b"x", is_empty=True)),
        (ProfileResponse(), Response(trace=None, is_empty=False)),
    ],
)
def test_what_protobuf_writes_is_read(message, expected):
    assert decode_response(message.SerializeToString(), "a:1") == expected


def test_fields_of_later_versions_are_passed_over():
    later = b"\x52\x03new"  # field 10
    raw = later + ProfileResponse(xspace=b"abc").SerializeToString() + later
    assert decode_response(raw, "a:1").trace == b"abc"


@pytest.mark.parametrize("raw", [b"\x42\xff", b"\x00", b"\x42\x05ab"])
def test_other_bytes_are_refused(raw):
    with pytest.raises(TraceError):
        decode_response(raw, "a:1")


@pytest.mark.parametrize("duration_ms", [1, LONGEST_MS])
def test_durations_at_the_ends_are_allowed(duration_ms):
    assert check_duration(duration_ms) == duration_ms


@pytest.mark.parametrize("duration_ms", [0, -1, LONGEST_MS + 1, 36_000_000])
def test_other_durations_are_refused(duration_ms):
    with pytest.raises(CaptureError, match=r"choose 1 to 600,000 ms"):
        check_duration(duration_ms)
