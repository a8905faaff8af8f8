"""A real PostgreSQL server on a loopback port, started from Debian's package."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from helpers.processes import unused_port


def programs():
    """The folder of PostgreSQL's programs; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    anywhere = shutil.which("initdb")
    return found[-1].parent if found else anywhere and Path(anywhere).parent


@contextmanager
def server():
    """
    The URL of a server's empty database.

    The server refuses to run as root, and then runs as the user postgres, who cannot enter pytest's temporary folders.
    """
    port, is_root = unused_port(), os.getuid() == 0
    as_user = ["runuser", "-u", "postgres", "--"] if is_root else []
    with tempfile.TemporaryDirectory(prefix="tfperf-postgres-", dir="/tmp") as folder:
        data = Path(folder) / "data"
        if is_root:
            shutil.chown(folder, "postgres")

        def run(name, *arguments):
            command = [*as_user, programs() / name, *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=60)

        run("initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
        options = f"-p {port} -c unix_socket_directories='' -c listen_addresses=127.0.0.1 -F"
        run("pg_ctl", "-D", data, "-o", options, "-l", data / "log", "-w", "start")
        try:
            yield f"postgresql://tester:secret@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def new_database(url, name):
    """The URL of a new empty database of the server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{url.rpartition('/')[0]}/{name}"
