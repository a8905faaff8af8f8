"""`tfperf capture` of a server that would fill the memory, in processes of their own."""

import subprocess
import sys

import pytest
from helpers.paths import TESTS

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

SIZE = 400 << 20
CAPTURE = """
import sys
from pytest_tfperf.cli.main import main

status = main(sys.argv[1:])
# getrusage would tell the peak of the process that started this one
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("peak", int(peak) // 1024, "MiB")
sys.exit(status)
"""


@pytest.fixture
def port():
    command = [sys.executable, str(TESTS / "helpers" / "bomb_server.py"), str(SIZE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def test_a_compressed_answer_is_refused_before_it_fills_the_memory(tmp_path, port):
    arguments = [f"grpc://127.0.0.1:{port}", "--ms", "10", "-o", str(tmp_path / "log")]
    command = [sys.executable, "-c", CAPTURE, "capture", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}: failed: " in done.stderr
    assert "Compression algorithm" in done.stderr
    [peak] = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("peak ")]
    assert int(peak) < SIZE >> 20
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
