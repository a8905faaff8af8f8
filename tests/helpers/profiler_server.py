"""A profiler server of gRPC that answers as a test says."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELDS = {
    "ProfileOptions": {
        "include_dataset_ops": (1, "bool"),
        "host_tracer_level": (2, "uint32"),
        "device_tracer_level": (3, "uint32"),
        "python_tracer_level": (4, "uint32"),
        "version": (5, "uint32"),
        "enable_hlo_proto": (7, "bool"),
        "duration_ms": (9, "uint64"),
    },
    "ProfileRequest": {
        "duration_ms": (1, "uint64"),
        "opts": (4, ".tensorflow.ProfileOptions"),
        "repository_root": (5, "string"),
        "session_id": (6, "string"),
        "host_name": (7, "string"),
        "emit_xspace": (9, "bool"),
    },
    "ProfileResponse": {"empty_trace": (7, "bool"), "xspace": (8, "bytes")},
}
"""Numbers and types of profiler_service.proto and profiler_options.proto; XSpace is bytes here."""


def _messages():
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/profiler_service.proto", package="tensorflow", syntax="proto3"
    )
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            row = message.field.add(name=field, number=number, label=1)
            if kind.startswith("."):
                row.type, row.type_name = row.TYPE_MESSAGE, kind
            else:
                row.type = getattr(row, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))
        for name in FIELDS
    }


MESSAGES = _messages()
ProfileRequest, ProfileResponse = MESSAGES["ProfileRequest"], MESSAGES["ProfileResponse"]


def answers(trace):
    """Answer with a trace."""
    return lambda request, context: ProfileResponse(xspace=trace).SerializeToString()


def fails(code, details):
    """Answer with an error."""
    return lambda request, context: context.abort(code, details)


class OneProfiler:
    """Answer with a trace after some time, and with an error to others meanwhile, as a process does."""

    def __init__(self, trace, seconds):
        self._trace, self._seconds = trace, seconds
        self._session = threading.Lock()
        self.begun = []

    def __call__(self, request, context):
        if not self._session.acquire(blocking=False):
            context.abort(grpc.StatusCode.INTERNAL, "Another profiling session active.")
        try:
            self.begun.append(time.monotonic())
            time.sleep(self._seconds)
        finally:
            self._session.release()
        return answers(self._trace)(request, context)


def runs_nothing(request, context):
    """Answer as a process that did nothing."""
    return ProfileResponse(empty_trace=True, xspace=b"").SerializeToString()


def writes(trace):
    """Answer as a server that knows no `emit_xspace`."""

    def answer(request, context):
        folder = Path(request.repository_root) / request.session_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{request.host_name}.xplane.pb").write_bytes(trace)
        return ProfileResponse().SerializeToString()

    return answer


def in_turn(*answers):
    """Give the answers one after the other, the last one again and again."""
    left = list(answers)
    return lambda *call: (left.pop(0) if len(left) > 1 else left[0])(*call)


@contextmanager
def serving(answer, method="/tensorflow.ProfilerService/Profile", at="127.0.0.1:0"):
    """A server on a free port of this machine; `requests` are those that it had."""
    server = _Server(answer, method, at)
    try:
        yield server
    finally:
        server.stop()


class _Server:
    def __init__(self, answer, method, at):
        self.requests = []
        self.cancelled = threading.Event()
        self._answer = answer
        service, _, name = method[1:].partition("/")
        handler = grpc.unary_unary_rpc_method_handler(
            self._handle, request_deserializer=ProfileRequest.FromString
        )
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {name: handler})]
        )
        self.port = self._server.add_insecure_port(at)
        self._server.start()

    @property
    def address(self):
        return f"grpc://127.0.0.1:{self.port}"

    def _handle(self, request, context):
        context.add_callback(self.cancelled.set)
        self.requests.append(request)
        return self._answer(request, context)

    def stop(self):
        self._server.stop(None).wait()
