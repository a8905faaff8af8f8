from helpers.refusals import refusal

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.remote.profiler_service import Worker, read_workers


def test_addresses_are_read():
    for text, workers in [
        ("grpc://a:6009", [Worker("a", 6009)]),
        ("a:1", [Worker("a", 1)]),
        ("a:65535", [Worker("a", 65535)]),
        (" a:1 , grpc://b.c:2 ", [Worker("a", 1), Worker("b.c", 2)]),
        ("grpc://[::1]:6009", [Worker("::1", 6009)]),
    ]:
        assert list(read_workers(text)) == workers, text


REFUSED = [
    ("", "'' lacks a host or a port"),
    ("a", "'a' lacks a host or a port"),
    (":1", "':1' lacks a host or a port"),
    ("a:0", "'a:0' lacks a host or a port"),
    ("a:65536", "'a:65536' lacks a host or a port"),
    ("a:-1", "'a:-1' lacks a host or a port"),
    ("a:x", "'a:x' lacks a host or a port"),
    ("[::1:5", "'[::1:5' lacks a host or a port"),
    ("a:1,", "'' lacks a host or a port"),
    ("http://a:1", "http://a:1 is no address of a profiler server"),
    ("a:1/x", "a:1/x has more than a host and a port"),
    ("me@a:1", "me@a:1 has more than a host and a port"),
    ("a:1?b", "a:1?b has more than a host and a port"),
    ("a:1,grpc://a:1", "a:1 is named twice"),
]


def test_other_text_is_refused():
    for text, message in REFUSED:
        said = refusal(CaptureError, read_workers, text)
        assert said.startswith(message), text
        assert "\n" not in said, text


SCHEMES = (
    "unix",
    "unix-abstract",
    "dns",
    "ipv4",
    "ipv6",
    "vsock",
    "passthrough",
    "xds",
    "google-c2p",
)
"""Schemes of gRPC, which machines may be named as."""


def test_a_worker_has_a_name_for_people_for_grpc_and_for_its_file():
    for worker, address, target, stem in [
        (Worker("a.b-c", 6009), "a.b-c:6009", "dns:///a.b-c:6009", "a.b-c_6009"),
        (Worker("::1", 5), "[::1]:5", "dns:///[::1]:5", "__1_5"),
        (Worker("fe80::1%lo", 5), "[fe80::1%lo]:5", "dns:///[fe80::1%25lo]:5", "fe80__1_lo_5"),
        *((Worker(name, 5), f"{name}:5", f"dns:///{name}:5", f"{name}_5") for name in SCHEMES),
        (Worker("a/../b", 5), "a/../b:5", "dns:///a%2F..%2Fb:5", "a_.._b_5"),
    ]:
        assert (worker.address, worker.target, worker.file_stem) == (address, target, stem), worker
