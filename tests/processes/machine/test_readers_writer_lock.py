"""The readers–writer lock between real processes."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from pytest_tfperf.machine.locks import ReadersWriterLock

pytestmark = pytest.mark.usefixtures("processes")

HOLDER = """
import os, sys, time
from pathlib import Path
from pytest_tfperf.machine.locks import ReadersWriterLock

lock = ReadersWriterLock(Path(sys.argv[1]))
with lock.alone(60) if sys.argv[2] == "alone" else lock.shared():
    if "fork" in sys.argv and os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    print(time.monotonic(), flush=True)
    sys.stdin.read()
"""
LOOP = """
import random, sys, time
from pathlib import Path
from pytest_tfperf.machine.locks import ReadersWriterLock

lock, chance = ReadersWriterLock(Path(sys.argv[1])), random.Random(sys.argv[2])
for _ in range(25):
    alone = chance.random() < 0.3
    with lock.alone(60) if alone else lock.shared():
        start = time.monotonic()
        time.sleep(chance.random() * 0.01)
        print(alone, start, time.monotonic())
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def held(path, how, *options):
    """A process that holds the lock."""
    with start(HOLDER, path, how, *options) as process:
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.lock"


@pytest.mark.full
def test_one_alone_or_many_at_once(path):
    processes = [start(LOOP, path, number) for number in range(4)]
    spans = []
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        for line in output.splitlines():
            alone, first, last = line.split()
            spans.append((alone == "True", float(first), float(last)))
    assert len(spans) == 100
    beside = [
        (one, other)
        for i, one in enumerate(spans)
        for other in spans[:i]
        if one[1] < other[2] and other[1] < one[2]
    ]
    assert [pair for pair in beside if pair[0][0] or pair[1][0]] == []
    assert beside


def test_time_to_wait_is_bounded_and_nothing_is_held_afterwards(path):
    for first in ("alone", "shared"):
        with held(path, first) as process:
            before = time.monotonic()
            with ReadersWriterLock(path).alone(0.2) as alone:
                assert not alone, first
                assert time.monotonic() - before >= 0.2
                later = path if first == "shared" else path.with_name("other")
                with held(later, first):
                    pass  # who came later does not wait for this process
            process.stdin.close()
            process.wait(60)
        with ReadersWriterLock(path).alone(0) as alone:
            assert alone, first


@pytest.mark.full
def test_who_waits_to_be_alone_goes_before_those_who_will_share(path):
    with held(path, "shared") as reader, start(HOLDER, path, "alone") as writer:
        time.sleep(0.3)
        with start(HOLDER, path, "shared") as late:
            time.sleep(0.3)
            reader.kill()
            first = float(writer.stdout.readline())
            writer.kill()
            assert float(late.stdout.readline()) > first
            late.kill()


@pytest.mark.nightly
def test_a_killed_process_holds_nothing(path):
    for how in ("alone", "shared"):
        for options in ([], ["fork"]):
            with held(path, how, *options) as process:
                process.send_signal(signal.SIGKILL)
                process.wait(5)
                with ReadersWriterLock(path).alone(1) as alone:
                    assert alone, (how, options)
