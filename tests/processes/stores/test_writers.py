"""Many writers of a history at once, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.paths import TESTS

from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

STEP_TIMES = Selection(project="demo", metrics=("step_time",))
WRITER = """
import itertools, sys
from helpers.histories import run_at, store_of
from pytest_tfperf.stores.history import open_store

store = open_store(sys.argv[1])
for n in itertools.count():
    store_of(run_at(n % 1440, 0.1 + n * 1e-6, commit=f"{sys.argv[2]}{n:06x}"), store=store)
    print(n, flush=True)
    if n == int(sys.argv[3]):
        break
"""


def writer(folder, name, n):
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", WRITER, folder, name, str(n)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_writers_at_once_lose_nothing(tmp_path):
    folder = str(tmp_path / "store")
    writers = [writer(folder, name, 9) for name in ("aaaaaa", "bbbbbb", "cccccc")]
    for one in writers:
        assert one.wait(60) == 0
        one.stdout.close()
    rows = open_store(folder).rows(STEP_TIMES)
    assert len({row.commit for row in rows}) == len(rows) == 30


@pytest.mark.nightly
def test_a_writer_that_is_killed_leaves_no_part_of_an_object(tmp_path):
    folder = str(tmp_path / "store")
    one = writer(folder, "aaaaaa", 10_000)
    assert one.stdout.readline() == "0\n"
    time.sleep(0.2)
    one.send_signal(signal.SIGKILL)
    said = one.stdout.read().split()
    one.stdout.close()
    one.wait()
    store = open_store(folder)
    rows = store.rows(STEP_TIMES)
    assert len(rows) in (1 + len(said), 2 + len(said))
    assert not store.unread
    for file in (tmp_path / "store").rglob("*.json"):
        assert json.loads(file.read_text("utf-8"))["format"] == 2
