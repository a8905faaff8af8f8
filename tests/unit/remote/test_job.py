"""Jobs whose workers are real gRPC servers, with answers that a test chooses."""

import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from helpers import profiler_server
from helpers.processes import unused_port
from helpers.profiler_server import (
    OneProfiler,
    answers,
    fails,
    in_turn,
    runs_nothing,
    serving,
    writes,
)
from helpers.xspace import field, plane, space

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.remote import job, profiler_service
from pytest_tfperf.remote.job import CapturePlan, capture_job
from pytest_tfperf.remote.profiler_service import TraceOptions, read_workers

ONE, TWO, OLD, X, Y = (space(plane(name)) for name in ("one", "two", "old", "x", "y"))
BUSY = fails(grpc.StatusCode.INTERNAL, "Another profiling session active.")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(job, "_PAUSE_S", 0.0)


def capture(servers, logdir, announce=lambda text: None, **plan):
    addresses = ",".join(getattr(server, "address", server) for server in servers)
    options = TraceOptions(duration_ms=10)
    found = CapturePlan(options=options, **plan)
    return capture_job(read_workers(addresses), found, logdir, announce)


def files(logdir):
    """All that is in a logdir, also hidden."""
    return sorted(
        path.relative_to(logdir).as_posix() for path in logdir.rglob("*") if path.is_file()
    )


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_the_traces_of_all_workers_are_one_run(tmp_path):
    with serving(answers(ONE)) as one, serving(answers(TWO)) as two:
        found = capture([one, two], tmp_path)
    assert [path.read_bytes() for path in found.traces] == [ONE, TWO]
    assert found.errors == ()
    run = found.traces[0].parent
    assert run.parent == tmp_path / "plugins" / "profile"
    assert files(run) == sorted(f"127.0.0.1_{one.port}.xplane.pb" for one in (one, two))
    assert files(tmp_path) == [f"plugins/profile/{run.name}/{name}" for name in files(run)]


def test_workers_are_traced_at_the_same_time(tmp_path):
    together = threading.Barrier(3, timeout=20)

    def answer(request, context):
        together.wait()
        return answers(X)(request, context)

    with serving(answer) as one, serving(answer) as two, serving(answer) as three:
        assert len(capture([one, two, three], tmp_path).traces) == 3


def test_captures_of_the_same_workers_wait_for_each_other(tmp_path):
    """In another order of the workers too; without the locks, each would trace one of them."""
    answer, other, said = OneProfiler(X, 0.1), OneProfiler(Y, 0.1), []
    with serving(answer) as one, serving(other) as two, ThreadPoolExecutor(4) as threads:
        orders = [[one, two], [two, one]] * 2
        calls = [
            threads.submit(capture, order, tmp_path, said.append, attempts=1) for order in orders
        ]
        found = [call.result() for call in calls]
    assert [len(each.traces) for each in found] == [2] * 4
    assert len(answer.begun) == len(other.begun) == 4
    assert "waiting until another trace of this job has ended" in "".join(said)


def test_locks_have_short_names_and_none_is_taken_twice():
    long = "a" * 300
    workers = read_workers(f"b{long}:1,c{long}:1,d:2,c:2")
    names = job._lock_names(workers)
    assert names == ["profiler-" + "a" * 98 + "_1", "profiler-c_2", "profiler-d_2"]
    assert max(map(len, names)) < 120


def test_the_pause_is_as_long_as_the_trace_of_another_client_may_be(monkeypatch):
    monkeypatch.undo()
    errors = [
        profiler_service.NothingTracedError("nothing ran"),
        profiler_service.BeingTracedError("is being traced"),
    ]
    for duration_ms, pause_s in [(10, 1.0), (2000, 2.0), (600_000, 10.0)]:
        options = TraceOptions(duration_ms=duration_ms)
        assert job._pause_s(errors, options) == pause_s, duration_ms
        assert job._pause_s(errors[:1], options) == 1.0, duration_ms


def test_if_all_are_wanted_a_new_attempt_traces_all_at_the_same_time(tmp_path):
    with serving(answers(ONE)) as one, serving(in_turn(BUSY, answers(TWO))) as two:
        found = capture([one, two], tmp_path, requires_all=True)
        assert len(one.requests) == len(two.requests) == 2
        some = capture([one, two], tmp_path)
    assert found.errors == some.errors == ()
    assert [path.read_bytes() for path in found.traces] == [ONE, TWO]


def test_if_all_are_wanted_one_that_never_answers_ends_the_attempts(tmp_path):
    with (
        serving(BUSY) as one,
        serving(fails(grpc.StatusCode.INTERNAL, "odd")) as two,
    ):
        errors = capture([one, two], tmp_path, requires_all=True).errors
        assert len(one.requests) == len(two.requests) == 1
    assert len(errors) == 2


def test_a_second_run_within_a_second_has_a_name_of_its_own(tmp_path):
    with serving(answers(X)) as one:
        runs = {capture([one], tmp_path).traces[0].parent for _ in range(3)}
    assert len(runs) == 3


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (BUSY, "is being traced already"),
        (runs_nothing, "nothing ran in 10 ms"),
        (fails(grpc.StatusCode.UNAVAILABLE, "not yet"), "cannot be reached: not yet"),
    ],
)
def test_what_may_pass_is_tried_again(tmp_path, first, reason):
    with serving(in_turn(first, first, answers(X))) as one:
        assert capture([one], tmp_path, attempts=3).errors == ()
        assert len(one.requests) == 3
    with serving(first) as one:
        found = capture([one], tmp_path / "other", attempts=2)
        assert len(one.requests) == 2
    [error] = found.errors
    assert str(error).startswith(f"127.0.0.1:{one.port}: {reason}")
    assert str(error).endswith("(after 2 attempts)")
    assert found.traces == ()
    assert files(tmp_path / "other") == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (fails(grpc.StatusCode.INTERNAL, "odd"), "failed: internal: odd"),
        (lambda *_: b"\x42\xff", "its answer is no trace: "),
        (lambda *_: 1 / 0, "failed: unknown: "),
    ],
)
def test_what_does_not_pass_is_not_tried_again(tmp_path, answer, reason):
    with serving(answer) as one:
        [error] = capture([one], tmp_path, attempts=3).errors
        assert len(one.requests) == 1
    assert str(error).startswith(f"127.0.0.1:{one.port}: {reason}")


def test_what_a_server_says_controls_no_terminal_and_no_job_log(tmp_path):
    """pytest shows the error of a test as it is."""
    said = "\x1b]0;title\x07\n::error title=x::y\n##[add-mask]z\u202e " + "long" * 900
    codes = list(grpc.StatusCode)[1:]
    with serving(in_turn(*(fails(code, said) for code in codes))) as one:
        for n, code in enumerate(codes, 1):
            [error] = capture([one], tmp_path, attempts=1).errors
            assert len(one.requests) == n, code
            assert str(error).isprintable(), code
            assert "##[" not in str(error), code
            assert len(str(error)) < 600, code


def test_another_service_is_named(tmp_path):
    with serving(answers(X), method="/helloworld.Greeter/SayHello") as one:
        [error] = capture([one], tmp_path).errors
    assert "serves something else than the profiler; check its port" in str(error)


def test_what_speaks_no_grpc_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as one:

        def answer():
            connection, _ = one.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello" + b" " * 100)

        threading.Thread(target=answer, daemon=True).start()
        [error] = capture([f"127.0.0.1:{one.getsockname()[1]}"], tmp_path, attempts=1).errors
    assert "cannot be reached: " in str(error)
    assert "HTTP/2" in str(error)
    assert "are host, port and firewalls right" in str(error)


def test_what_closes_the_connection_at_once_is_named(tmp_path):
    """As a server with encryption does, and a tunnel to a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as one:

        def close():
            one.accept()[0].close()

        threading.Thread(target=close, daemon=True).start()
        [error] = capture([f"127.0.0.1:{one.getsockname()[1]}"], tmp_path, attempts=1).errors
    assert "cannot be reached: " in str(error)
    assert "are host, port and firewalls right" in str(error)


def test_a_name_without_an_address_is_named(tmp_path):
    [error] = capture(["no-such-host.invalid:6009"], tmp_path, attempts=1).errors
    assert str(error).startswith("no-such-host.invalid:6009: cannot be reached: ")
    assert "are host, port and firewalls right" in str(error)


def test_a_machine_named_unix_is_no_socket_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiler_service, "_GRACE_S", 5.0)
    with serving(answers(X)) as one, serving(answers(Y), at="unix:6009") as other:
        found = capture(["unix:6009", one], tmp_path / "log", attempts=1)
        assert other.requests == []
    assert [path.read_bytes() for path in found.traces] == [X]
    [error] = found.errors
    assert str(error).startswith("unix:6009: cannot be reached: ")


def test_a_machine_is_found_by_name_and_by_address(tmp_path):
    with serving(answers(X)) as one:
        for host in ("localhost", "LOCALHOST", "127.0.0.1"):
            [path] = capture([f"grpc://{host}:{one.port}"], tmp_path).traces
            assert path.read_bytes() == X, host


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_a_machine_is_found_by_its_ipv6_address(tmp_path):
    with serving(answers(X), at="[::1]:0") as one:
        [path] = capture([f"grpc://[::1]:{one.port}"], tmp_path).traces
    assert path.read_bytes() == X


@pytest.mark.parametrize("linger", [b"", struct.pack("ii", 1, 0)], ids=["closed", "reset"])
def test_a_connection_that_ends_while_it_is_traced_is_not_tried_again(tmp_path, linger):
    """A process that the profiler made crash would crash again."""
    settings, calls = bytes(3) + b"\x04" + bytes(5), []
    with socket.create_server(("127.0.0.1", 0)) as one:

        def serve():
            connection, _ = one.accept()
            with connection:
                connection.sendall(settings)
                while b"Profile" not in (got := connection.recv(10_000)):
                    assert got
                calls.append(1)
                if linger:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

        thread = threading.Thread(target=serve)
        thread.start()
        [error] = capture([f"127.0.0.1:{one.getsockname()[1]}"], tmp_path).errors
        thread.join()
    assert calls == [1]
    assert "ended the connection while it was traced (" in str(error)
    assert str(error).endswith("whether the process has crashed, or a tunnel to it has ended")


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_no_proxy_of_the_environment_is_between(tmp_path, monkeypatch, name):
    for other in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy, serving(answers(X)) as one:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setattr(profiler_service, "_GRACE_S", 3.0)
        found = capture([one], tmp_path, attempts=1)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert [path.read_bytes() for path in found.traces] == [X]


def test_a_listener_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(
        profiler_service,
        "_CHANNEL",
        (*profiler_service._CHANNEL[:-1], ("grpc.min_reconnect_backoff_ms", 300)),
    )
    with socket.create_server(("127.0.0.1", 0)) as one:
        [error] = capture([f"127.0.0.1:{one.getsockname()[1]}"], tmp_path, attempts=1).errors
    assert "cannot be reached: " in str(error)
    assert "timed out" in str(error)


def test_a_server_that_hangs_is_given_up_and_released(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler_service, "_GRACE_S", 0.3)
    released = threading.Event()

    def hang(request, context):
        released.wait(20)
        return b""

    with serving(hang) as one, serving(answers(X)) as two:
        found = capture([one, two], tmp_path)
        assert one.cancelled.wait(20)
        released.set()
    [error] = found.errors
    assert f"{one.port}: did not answer within 0 s" in str(error)
    assert [path.read_bytes() for path in found.traces] == [X]


def test_a_server_that_dies_in_the_middle_is_named(tmp_path):
    begun = threading.Event()

    def die(request, context):
        begun.set()
        time.sleep(5)
        return b""

    with serving(die) as one:
        threading.Thread(target=lambda: (begun.wait(), one.stop()), daemon=True).start()
        found = capture([one], tmp_path, attempts=1)
    assert len(found.errors) == 1
    assert files(tmp_path) == []


def test_other_workers_are_kept_unless_all_are_wanted(tmp_path):
    gone = f"127.0.0.1:{unused_port()}"
    with serving(answers(X)) as one:
        some = capture([gone, one], tmp_path / "some", attempts=1)
        all_or_none = capture([gone, one], tmp_path / "all", attempts=1, requires_all=True)
    assert [path.name for path in some.traces] == [f"127.0.0.1_{one.port}.xplane.pb"]
    assert all_or_none.traces == ()
    assert files(tmp_path / "all") == []
    for found in (some, all_or_none):
        [error] = found.errors
        assert f"{gone}: cannot be reached: " in str(error)
        assert "Connection refused; is the job running" in str(error)


def test_a_server_that_writes_the_file_itself_is_understood(tmp_path):
    with serving(writes(OLD)) as one:
        found = capture([one], tmp_path)
    assert [path.read_bytes() for path in found.traces] == [OLD]


def test_a_server_that_writes_on_another_machine_is_named(tmp_path):
    with serving(lambda *_: profiler_server.ProfileResponse().SerializeToString()) as one:
        [error] = capture([one], tmp_path).errors
    assert "wrote it on its own machine as" in str(error)


NO_TRACES = {
    "a byte": b"x",
    "a page": b"<html>not found</html>" * 9,
    "another message": field(7, "no plane"),
    "cut": X[:-1],
    "a line that is cut": space(plane("x", b"\x22\x05")),
}


@pytest.mark.parametrize("serve", [answers, writes])
def test_an_answer_that_is_no_trace_is_refused_and_not_stored(tmp_path, serve):
    for name, content in NO_TRACES.items():
        logdir = tmp_path / name
        with serving(serve(content)) as one, serving(answers(X)) as two:
            found = capture([one, two], logdir)
            assert len(one.requests) == 1, name
            alone = capture([one], logdir / "alone")
        [error] = found.errors
        assert str(error).startswith(f"127.0.0.1:{one.port}: its answer is no trace: "), name
        assert [path.read_bytes() for path in found.traces] == [X], name
        stored = [Path(file).name for file in files(logdir)]
        assert stored == [f"127.0.0.1_{two.port}.xplane.pb"], name
        assert (alone.traces, len(alone.errors)) == ((), 1), name


def test_a_large_trace_arrives(tmp_path):
    trace = space(plane("x" * 10_000_000))  # more than gRPC takes by default
    with serving(answers(trace)) as one:
        [path] = capture([one], tmp_path).traces
    assert path.read_bytes() == trace


@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_may_be_as_large_as_the_limit(tmp_path, monkeypatch, more):
    most = len(answers(X)(None, None)) - more
    channel = {**dict(profiler_service._CHANNEL), "grpc.max_receive_message_length": most}
    monkeypatch.setattr(profiler_service, "_CHANNEL", tuple(channel.items()))
    with serving(answers(X)) as one:
        found = capture([one], tmp_path)
        assert len(one.requests) == 1
    assert (len(found.traces), len(found.errors)) == (1 - more, more)
    assert all("received message larger than max" in str(one).lower() for one in found.errors)


def test_what_interrupts_leaves_nothing(tmp_path, monkeypatch):
    begun, released = threading.Event(), threading.Event()

    def answer(request, context):
        begun.set()
        released.wait(20)
        return b""

    def interrupted(_):
        begun.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(profiler_service.Call, "trace", interrupted)
    with serving(answer) as one:
        with pytest.raises(KeyboardInterrupt):
            capture([one], tmp_path)
        assert one.cancelled.wait(20)
        released.set()
    assert files(tmp_path) == []


@pytest.mark.parametrize("make", [lambda path: path.write_text("a file"), None])
def test_a_folder_that_cannot_be_written_is_named_before_anything_is_traced(tmp_path, make):
    logdir = Path("/proc/none") if make is None else tmp_path / "log"
    if make is not None:
        make(logdir)
    with serving(answers(X)) as one:
        with pytest.raises(CaptureError, match="no trace can be written in"):
            capture([one], logdir)
        assert one.requests == []


@pytest.mark.parametrize("link", ["plugins", "plugins/profile"])
@pytest.mark.parametrize("target", ["outside", "outside/made"])
def test_a_link_of_a_logdir_that_leaves_it_is_refused_before_anything_is_traced(
    tmp_path, link, target
):
    logdir, outside = tmp_path / "log", tmp_path / "outside"
    (logdir / link).parent.mkdir(parents=True)
    outside.mkdir()
    (logdir / link).symlink_to(tmp_path / target)
    with serving(answers(X)) as one:
        with pytest.raises(CaptureError, match=r"plugins/profile leads out of .*nothing was"):
            capture([one], logdir)
        assert one.requests == []
        assert list(outside.iterdir()) == []
        (tmp_path / "named").mkdir()
        (tmp_path / "linked").symlink_to("named")
        assert len(capture([one], tmp_path / "linked").traces) == 1, "the user names a link"


def test_without_grpc_a_sentence_tells_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(CaptureError, match=r"pip install 'pytest-tfperf\[capture\]'"):
        capture(["a:1"], tmp_path)
