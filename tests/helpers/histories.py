"""Runs for histories, and stores of each kind: a folder, fsspec's memory, a bucket over HTTP, PostgreSQL."""

import uuid
from contextlib import ExitStack, contextmanager

import pytest
from helpers import postgres
from helpers.builders import LAPTOP, profile, record_of
from helpers.processes import unused_port

# loaded before `pytester` takes note of the modules: DuckDB can be loaded once in a process
import pytest_tfperf.stores.object_history  # noqa: F401
from pytest_tfperf.runs import Run
from pytest_tfperf.stores.rows import rows_of

KINDS = ("folder", "memory", "s3", "postgresql")


def run_at(
    minute, step_time=0.1, commit="abc123def456", branch="main", day=1, tests=None, **fields
):
    """A run of one test, made in January at a day and a minute."""
    fields = {"environment": LAPTOP, **fields}
    tests = tests or [record_of(profile(step_time=step_time, retraces=2), **fields)]
    created = f"2026-01-{day:02}T{minute // 60:02}:{minute % 60:02}:00+00:00"
    return Run(created=created, tests=tuple(tests), commit=commit, branch=branch)


def store_of(*runs, store, project="demo"):
    for run in runs:
        store.append(rows_of(run, project))
    return store


@contextmanager
def addresses(folder):
    """A function that gives the address of a new empty store of a kind; servers start when one is asked for."""
    with ExitStack() as stack:
        servers = {}

        def address(kind):
            unique = uuid.uuid4().hex
            if kind == "folder":
                return str(folder / unique)
            if kind == "memory":
                return f"memory://{unique}"
            if kind == "s3":
                if kind not in servers:
                    servers[kind] = stack.enter_context(bucket())
                return f"s3://{servers[kind]}/{unique}"
            if postgres.programs() is None:
                pytest.skip("no PostgreSQL server is installed")
            if kind not in servers:
                servers[kind] = stack.enter_context(postgres.server())
            return postgres.new_database(servers[kind], f"h{unique}")

        yield address


@contextmanager
def bucket():
    """The name of a bucket of a server that speaks S3 over HTTP, which the environment leads to."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=unused_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        try:
            name = (
                f"histories-{uuid.uuid4().hex}"  # one server of this process knows those of others
            )
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
            yield name
        finally:
            server.stop()
            s3fs.S3FileSystem.clear_instance_cache()
