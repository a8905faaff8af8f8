"""Buckets that are not there, that forbid, and that throttle: an error of one sentence each."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from helpers.histories import bucket, run_at, store_of
from helpers.refusals import refusal

from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection
from pytest_tfperf.stores.trace_files import find_trace_files
from pytest_tfperf.stores.trace_results import TraceResults

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]


@pytest.fixture
def refusing(monkeypatch):
    """A function that starts a server of S3 which answers each request by an error."""
    import s3fs

    servers = []

    def start(status, code, message):
        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_POST = answer

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")

    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
    s3fs.S3FileSystem.clear_instance_cache()


def errors(address):
    """What is said of a bucket by all that read and write there."""
    history, results = open_store(f"{address}/history"), TraceResults(f"{address}/store")
    yield "read", refusal(StoreError, history.rows, Selection())
    yield "read", refusal(StoreError, history.sql, "SELECT 1", "")
    yield "written", refusal(StoreError, lambda: store_of(run_at(0), store=history))
    yield "read", refusal(StoreError, results.index)
    yield "written", refusal(StoreError, results.add, "runs", "key", [])
    yield "listed", refusal(StoreError, find_trace_files, [f"{address}/traces"])


def check(address, why):
    for what, said in errors(address):
        assert f" cannot be {what}: " in said, said
        assert why in said, said
        assert said.count(address) == 1, said
        assert "\n" not in said, said


def test_one_that_is_not_there():
    with bucket() as name:
        check(f"s3://{name}-none", "bucket does not exist")
        assert open_store(f"s3://{name}/none").rows(Selection()) == []


def test_one_that_forbids(refusing):
    refusing(403, "AccessDenied", "Access Denied")
    check("s3://theirs", "")


def test_one_that_throttles(refusing):
    refusing(503, "SlowDown", "Please reduce your request rate.")
    check("s3://busy", "")
