"""The command `tfperf capture` of real gRPC servers that answer with stored traces."""

import json
import socket

import pytest
from helpers.paths import TESTS
from helpers.profiler_server import answers, serving

from pytest_tfperf.cli.main import command_parser, main
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.remote import job

TRACE = (TESTS / "data/traces/c1_cpu_basic.xplane.pb").read_bytes()


@pytest.fixture
def server():
    with serving(answers(TRACE)) as one:
        yield one


@pytest.fixture
def gone(monkeypatch):
    monkeypatch.setattr(job, "_PAUSE_S", 0.0)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def logdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")
    return tmp_path / "log"


def runs(logdir):
    return sorted(path.name for path in (logdir / "plugins" / "profile").glob("[0-9]*"))


def test_traces_are_named_with_what_to_do_next(server, logdir, capsys):
    assert main(["capture", server.address, "--ms", "10", "-o", "log"]) == 0
    file, following = capsys.readouterr().out.splitlines()
    [run] = runs(logdir)
    path, size = file.split("  ")
    assert path == f"log/plugins/profile/{run}/127.0.0.1_{server.port}.xplane.pb"
    assert (logdir.parent / path).read_bytes() == TRACE
    assert size == format_quantity(len(TRACE), "bytes")
    assert following == "next: tfperf analyze log"
    assert main(["analyze", "log"]) == 0


def test_options_arrive_at_the_server(server, logdir):
    levels = {"host": 3, "device": 0, "python": 1}
    flags = [word for name, n in levels.items() for word in (f"--{name}-tracer-level", str(n))]
    main(["capture", server.address, "--ms", "10", "-o", "log"])
    main(["capture", server.address, "--ms", "77", "-o", "log", *flags])
    usual, own = (request.opts for request in server.requests)
    found = [
        (one.duration_ms, one.host_tracer_level, one.device_tracer_level, one.python_tracer_level)
        for one in (usual, own)
    ]
    assert found == [(10, 2, 1, 0), (77, 3, 0, 1)]


def test_a_worker_that_is_missing_is_named(server, gone, logdir, capsys):
    words = ["capture", f"{gone},{server.address}", "--ms", "10", "-o", "log"]
    assert main(words) == 3
    assert len(runs(logdir)) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"tfperf: {gone}: cannot be reached: ")
    assert len(said.out.splitlines()) == 2
    assert main([*words, "--all"]) == 2
    assert len(runs(logdir)) == 1
    assert main(["capture", gone, "-o", "log"]) == 2


def test_a_worker_whose_answer_is_no_trace_is_named(server, logdir, capsys):
    with serving(answers(b"garbage")) as other:
        words = ["--ms", "10", "-o", "log"]
        assert main(["capture", f"{other.address},{server.address}", *words]) == 3
        said = capsys.readouterr().err
        assert said.startswith(f"tfperf: 127.0.0.1:{other.port}: its answer is no trace: ")
        assert main(["capture", other.address, *words]) == 2
    assert len(runs(logdir)) == 1
    assert [path.read_bytes() for path in logdir.rglob("*.pb")] == [TRACE]


def test_limits_are_checked_at_once(server, logdir, capsys):
    words = ["capture", server.address, "--ms", "10", "-o", "log", "--check"]
    assert main([*words, "--max-input-bound", "100%"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "PASS"
    assert main([*words, "--max-input-wait", "0 s"]) == 1
    assert "FAIL: input_wait is " in capsys.readouterr().out
    assert main([*words, "--max-flops", "1"]) == 3


def test_a_failed_check_outweighs_a_missing_worker(server, gone, logdir):
    words = ["capture", f"{gone},{server.address}", "--ms", "10", "-o", "log", "--check"]
    assert main([*words, "--max-input-wait", "0 s"]) == 1
    assert main([*words, "--max-input-bound", "100%"]) == 3


def test_json_has_traces_and_errors(server, gone, logdir, capsys):
    assert main(["capture", f"{gone},{server.address}", "--ms", "10", "-o", "log", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [path.rpartition("/")[2] for path in found["traces"]] == [
        f"127.0.0.1_{server.port}.xplane.pb"
    ]
    assert [error.startswith(gone) for error in found["errors"]] == [True]


def test_other_options_are_refused_before_anything_is_traced(server, logdir, capsys):
    for words, message in [
        (["--ms", "0"], "a trace of 0 ms is not possible"),
        (["--ms", "36000000"], "choose 1 to 600,000 ms"),
        (["--ms", "2.5"], "'2.5' is not a whole number"),
        (["--attempts", "0"], "'0' is not a positive whole number"),
        (["--delay", "10"], "'10' has no unit"),
        (["--delay=-1s"], "-1s is not a time above zero"),
        (["--host-tracer-level", "4"], "invalid choice: 4"),
        (["--max-input-bound", "5%"], "limits are for --check"),
        (["--every", "10s"], "no option '--every'; "),
        (["--check", "--max-inptu-bound", "5%"], "did you mean '--max-input-bound'?"),
        (["--atempts", "2"], "no option '--atempts'; did you mean '--attempts'?"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["capture", server.address, "-o", "log", *words])
            pytest.fail(f"{words} are taken")
        assert ended.value.code == 2, words
        assert message in capsys.readouterr().err, words
        assert server.requests == [], words


def test_what_misses_its_counterpart_is_refused(server, logdir, capsys):
    for words, message in [
        (["--check"], "no limit to check"),
    ]:
        assert main(["capture", server.address, "-o", "log", *words]) == 2, words
        assert message in capsys.readouterr().err, words
        assert server.requests == [], words


def test_a_wrong_address_is_refused_before_the_delay(logdir, monkeypatch, capsys):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waits {seconds} s"))
    assert main(["capture", "no port", "-o", "log", "--delay", "30s"]) == 2
    assert "no port" in capsys.readouterr().err


def test_times_may_be_long():
    for text, seconds in [("10min", 600), ("30s", 30), ("1.5 s", 1.5)]:
        words = ["capture", "worker:6009", "-o", "log", "--delay", text]
        assert command_parser("capture").parse_args(words).delay == seconds, text
