"""Messages by hand, and against those of Google's own Protobuf."""

from helpers.refusals import refusal
from helpers.xspace import field

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.remote.profiler_service import (
    LONGEST_MS,
    TraceOptions,
    check_duration,
    decode_response,
    encode_request,
)


def test_protobuf_reads_the_request():
    from helpers.profiler_server import ProfileRequest

    for levels in [(2, 1, 0), (0, 0, 0), (3, 1, 1)]:
        host, device, python = levels
        options = TraceOptions(
            duration_ms=70_000,
            host_tracer_level=host,
            device_tracer_level=device,
            python_tracer_level=python,
        )
        raw = encode_request(options, "/runs ü", "r" * 200, "a_1")
        request = ProfileRequest.FromString(raw)
        assert (request.duration_ms, request.opts.duration_ms) == (70_000, 70_000), levels
        opts = request.opts
        found = (opts.host_tracer_level, opts.device_tracer_level, opts.python_tracer_level)
        assert found == levels
        assert opts.version == 1
        assert opts.enable_hlo_proto
        assert opts.include_dataset_ops
        assert request.emit_xspace
        assert request.repository_root == "/runs ü"
        assert (request.session_id, request.host_name) == ("r" * 200, "a_1")


def test_what_protobuf_writes_is_read():
    from helpers.profiler_server import ProfileResponse

    for message, expected in [
        (ProfileResponse(xspace=b"abc"), (b"abc", False)),
        (ProfileResponse(xspace=b"x", empty_trace=True), (b"x", True)),
        (ProfileResponse(), (None, False)),
    ]:
        assert decode_response(message.SerializeToString(), "a:1") == expected, message


def test_an_answer_is_read_and_fields_of_later_versions_are_passed_over():
    for raw, expected in [
        (field(8, b"abc"), (b"abc", False)),
        (field(7, 1) + field(8, b"x"), (b"x", True)),
        (b"", (None, False)),
    ]:
        later = field(10, b"new")
        assert decode_response(raw, "a:1") == expected, raw
        assert decode_response(later + raw + later, "a:1") == expected, raw


def test_other_bytes_are_refused():
    for raw in (b"\x42\xff", b"\x00", b"\x42\x05ab"):
        assert refusal(TraceError, decode_response, raw, "a:1"), raw


def test_durations_from_1_to_600_000_ms_are_allowed():
    for duration_ms in (1, LONGEST_MS):
        assert check_duration(duration_ms) == duration_ms
    for duration_ms in (0, -1, LONGEST_MS + 1, 36_000_000):
        said = refusal(CaptureError, check_duration, duration_ms)
        assert "choose 1 to 600,000 ms" in said, duration_ms
