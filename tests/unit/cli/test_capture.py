"""The command `tfperf capture` of real gRPC servers that answer with stored traces."""

import json
import re
import socket
from pathlib import Path

import pytest
from helpers.paths import TESTS
from helpers.profiler_server import answers, in_turn, serving

from pytest_tfperf.cli import capture_command, sampling
from pytest_tfperf.cli.main import main
from pytest_tfperf.cli.sampling import SampledRuns
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.remote import job

TRACE = (TESTS / "data/traces/c1_cpu_basic.xplane.pb").read_bytes()
OTHER = (TESTS / "data/traces/p_in_20.0.xplane.pb").read_bytes()


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
    assert size == f"{len(TRACE) / 1e6:.2f} MB"
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
        (["--ms", "36000000"], "a trace of 36,000,000 ms is not possible"),
        (["--ms", "2.5"], "'2.5' is not a whole number of milliseconds, such as 2000"),
        (["--attempts", "0"], "0 is less than 1"),
        (["--every", "0.5s"], "0.5s is less than 1 s"),
        (["--every", "10"], "'10' has no unit"),
        (["--delay=-1s"], "-1s is less than 0"),
        (["--host-tracer-level", "4"], "invalid choice: 4"),
        (["--max-input-bound", "5%"], "--max-input-bound is a limit; limits follow --check"),
        (["--evry", "10s"], "unrecognized arguments: --evry 10s; did you mean --every?"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["capture", server.address, "-o", "log", *words])
            pytest.fail(f"{words} are taken")
        assert ended.value.code == 2, words
        assert message in capsys.readouterr().err, words
        assert server.requests == [], words


def test_what_misses_its_counterpart_is_refused(server, logdir, capsys):
    for words, message in [
        (["--samples", "3"], "--samples counts those of --every"),
        (["--check"], "no limit to check"),
        (["--check", "--max-inptu-bound", "5%"], "did you mean --max-input-bound?"),
    ]:
        assert main(["capture", server.address, "-o", "log", *words]) == 2, words
        assert message in capsys.readouterr().err, words
        assert server.requests == [], words


def test_times_may_be_long():
    for text, seconds in [("10m", 600), ("10min", 600), ("2h", 7200), ("30s", 30), ("1.5 s", 1.5)]:
        assert capture_command._seconds(text) == seconds, text


@pytest.fixture
def clock(monkeypatch):
    """The waits of the samples, which pass at once."""
    waits = []
    monkeypatch.setattr(sampling.time, "monotonic", lambda: sum(waits))
    monkeypatch.setattr(sampling.time, "sleep", waits.append)
    return waits


def test_samples_say_what_changed(logdir, capsys, clock):
    with serving(in_turn(answers(TRACE), answers(TRACE), answers(OTHER))) as server:
        words = ["--ms", "10", "--into", "log", "--every", "10m", "--samples", "3"]
        assert main(["capture", server.address, *words]) == 0
    worker = f"127.0.0.1_{server.port}"
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line).split(": ")[0] for line in lines] == [worker] * 3
    assert ["changed" in line for line in lines] == [False, False, True]
    assert clock == [0, 0, 600, 600]  # the first is that of --delay


def test_only_the_newest_samples_are_kept_and_no_run_of_others(server, logdir, clock):
    main(["capture", server.address, "--ms", "10", "-o", "log"])
    [own] = runs(logdir)
    words = ["capture", server.address, "--ms", "10", "--into", "log", "--every", "1s", "--keep"]
    assert main([*words, "2", "--samples", "3"]) == 0
    kept = [run for run in runs(logdir) if run != own]
    assert len(runs(logdir)) == 3
    assert main([*words, "2", "--samples", "1"]) == 0  # also of earlier commands
    assert own in runs(logdir)
    assert len(runs(logdir)) == 3
    assert kept[0] not in runs(logdir)


def test_samples_go_on_where_a_worker_is_missing(logdir, gone, clock, capsys):
    words = ["--ms", "10", "-o", "log", "--every", "1s", "--samples", "2", "--attempts", "1"]
    assert main(["capture", gone, *words]) == 3
    assert capsys.readouterr().err.count("cannot be reached") == 2


def test_a_check_of_one_sample_is_the_status_of_all(server, logdir, clock):
    words = ["--ms", "10", "-o", "log", "--every", "1s", "--samples", "2", "--check"]
    assert main(["capture", server.address, *words, "--max-input-wait", "0 s"]) == 1
    assert main(["capture", server.address, *words, "--max-input-bound", "100%"]) == 0


def made(logdir, name):
    run = logdir / "plugins/profile" / name
    run.mkdir(parents=True)
    (run / "host.xplane.pb").write_bytes(TRACE)
    return run


OLD, NEW = "2026_11_24_13_00_00", "2026_11_24_14_00_00"


def test_a_list_that_comes_with_a_logdir_removes_nothing(logdir):
    made(logdir, OLD)
    (logdir / "tfperf_samples.txt").write_text(f"{OLD}\n" * 3)
    SampledRuns(logdir, 1).add(made(logdir, NEW))
    assert runs(logdir) == [OLD, NEW]


def test_a_run_that_took_the_name_of_a_sample_is_kept(logdir):
    samples = SampledRuns(logdir, 1)
    samples.add(made(logdir, OLD))
    (logdir / "plugins/profile" / OLD).rename(logdir / "moved")
    made(logdir, OLD)
    samples.add(made(logdir, NEW))
    assert runs(logdir) == [OLD, NEW]
    assert (logdir / "moved/host.xplane.pb").is_file()


@pytest.mark.parametrize("target", ["moved", "../../../outside"])
def test_a_link_in_the_place_of_a_sample_is_not_followed(logdir, target):
    samples = SampledRuns(logdir, 1)
    samples.add(made(logdir, OLD))
    moved = (logdir / "plugins/profile" / OLD).rename(
        (logdir / "plugins/profile" / target).absolute()
    )
    (logdir / "plugins/profile" / OLD).symlink_to(target)
    samples.add(made(logdir, NEW))
    assert (moved / "host.xplane.pb").is_file()


def test_logdirs_of_one_name_have_lists_of_their_own(logdir, monkeypatch):
    for folder in ("one", "two"):
        (logdir / folder).mkdir(parents=True)
        monkeypatch.chdir(logdir / folder)
        SampledRuns(Path("log"), 1).add(made(Path("log"), OLD))
    assert [runs(logdir / folder / "log") for folder in ("one", "two")] == [[OLD]] * 2


@pytest.mark.parametrize("text", [b"\xff\xfe", b"..  1\n", b"x\n", f"{OLD} y\n".encode(), b"\0"])
def test_a_list_that_is_not_understood_removes_nothing_and_is_replaced(
    logdir, tmp_path, monkeypatch, text
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    SampledRuns(logdir, 1).add(made(logdir, OLD))
    [listed] = (tmp_path / "cache/pytest-tfperf/samples").iterdir()
    listed.write_bytes(text)
    SampledRuns(logdir, 1).add(made(logdir, NEW))
    assert runs(logdir) == [OLD, NEW]
    SampledRuns(logdir, 1).add(made(logdir, f"{NEW}_1"))
    assert runs(logdir) == [OLD, f"{NEW}_1"]


def test_without_a_cache_a_command_removes_its_own_samples(logdir, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    SampledRuns(logdir, 1).add(made(logdir, OLD))
    samples = SampledRuns(logdir, 1)
    for name in (NEW, f"{NEW}_1"):
        samples.add(made(logdir, name))
    assert runs(logdir) == [OLD, f"{NEW}_1"]


def test_a_sample_that_cannot_be_removed_is_named(logdir, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(sampling.shutil, "rmtree", refuse)
    samples = SampledRuns(logdir, 1)
    samples.add(made(logdir, OLD))
    with pytest.raises(CaptureError, match=r"old samples in .* cannot be removed: .*denied"):
        samples.add(made(logdir, NEW))
