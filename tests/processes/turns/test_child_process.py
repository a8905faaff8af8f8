"""A child process as its parent sees it: its events, its pauses and its end; plain Python runs."""

import os
import signal

import pytest
from helpers.processes import state, until
from helpers.scripted_child import scripted, task

from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns import pytest_child as process_module
from pytest_tfperf.turns.messages import Done, Ended, Ran
from pytest_tfperf.turns.pytest_child import ChildProcess

COLLECTED = "task = receive(); send(Collected(tests=['test_a.py::test'], profiled=['test_a.py::test'], errors={}));"


pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture
def start(cleanup, tmp_path):
    """Start a child process that runs some code."""
    children = []

    def new(code, **launch):
        children.append(ChildProcess(scripted(code, folder=tmp_path, **launch), cleanup))
        return children[-1]

    yield new
    for one in children:
        one.kill()


def collect(child, *files):
    """Name a task, and wait until it has collected."""
    child.send(task(*files))
    child.await_collected()


def pid_of(child):
    return child._process.pid


@pytest.mark.full
def test_a_process_in_a_missing_folder_cannot_be_started(cleanup, tmp_path):
    with pytest.raises(PairedError, match=r"the one on main cannot be started in .*nowhere: "):
        ChildProcess(scripted("", folder=tmp_path / "nowhere"), cleanup)


@pytest.mark.full
def test_nothing_is_left_of_a_start_that_is_interrupted(cleanup, tmp_path, monkeypatch):
    started = []

    def interrupt(pid):
        started.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(cleanup, "watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ChildProcess(scripted("time.sleep(600)", folder=tmp_path), cleanup)
    [pid] = started
    assert not state(pid)


@pytest.mark.full
def test_collected_tests_are_known(start, tmp_path):
    child = start(
        "task = receive(); send(Collected(tests=[os.getcwd(), os.environ['A'], *task.files], profiled=[], errors={}))",
        environment={"A": "b"},
    )
    collect(child, "test_a.py")
    assert child.collected == {str(tmp_path), "b", "test_a.py"}


@pytest.mark.full
def test_errors_of_a_file_are_its_own_and_those_of_its_folders(start):
    for errors, file, text in (
        ({"tests/test_a.py": "E1", "tests/test_b.py": "E2"}, "tests/test_a.py::test", "E1"),
        ({"tests": "E1", "test": "E2"}, "tests/deep/test_a.py::TestA::test[x::y]", "E1"),
        ({"": "E1", ".": "E2"}, "test_a.py::test", "E1\nE2"),
        ({"tests/test_a": "E1"}, "tests/test_a.py::test", ""),
        ({}, "test_a.py::test", ""),
    ):
        child = start(f"receive(); send(Collected(tests=[], profiled=[], errors={errors!r}))")
        collect(child)
        assert child.errors_of(file) == text, errors


def test_a_process_stands_still_unless_it_is_asked(start):
    child = start(f"{COLLECTED} receive(); send(Ran(step_s=1)); time.sleep(600)")
    collect(child)
    assert state(pid_of(child)) == "T"
    child.send(Done())
    assert child.next_event() == Ran(step_s=1)
    until(lambda: state(pid_of(child)) == "T")


@pytest.mark.full
def test_its_child_processes_stand_still_with_it(start):
    child = start(
        "child = subprocess.Popen(['sleep', '600']); receive(); send(Collected(tests=[], profiled=[], errors={'': str(child.pid)})); receive()"
    )
    collect(child)
    grandchild = int(child.errors_of("test_a.py"))
    until(lambda: state(grandchild) == "T")
    child.kill()
    assert not state(pid_of(child))
    until(lambda: not state(grandchild))


@pytest.mark.full
def test_reports_and_warnings_of_the_running_test(start):
    child = start(
        f"{COLLECTED}\nfor i in range(2): send(Warned(message=receive().test, module='', category='', filename='', lineno=1, location=None)); send(Reported(report={{'i': i}})); send(Ended())"
    )
    collect(child)
    for i, test in enumerate(("test_a.py::test", "again")):
        child.run(test)
        assert child.next_event() == Ended()
        assert child.reports == [{"i": i}]
        assert [warned.message for warned in child.warnings] == [test]


@pytest.mark.full
def test_an_event_that_is_put_back_is_the_next(start):
    child = start(
        f"{COLLECTED} receive(); send(Ran(step_s=1)); receive(); send(Ended()); receive()"
    )
    collect(child)
    child.send(Done())
    child.put_back(child.next_event())
    child.end_turns()  # nobody waits for turns
    assert child.next_event() == Ran(step_s=1)
    child.end_turns()
    assert child.next_event() == Ended()


def test_the_end_of_a_process_is_reported_with_its_output(start):
    for code, how in (
        ("sys.exit(3)", "ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended with SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("raise ValueError('no such model')", "ended with exit status 1"),
    ):
        child = start(f"{COLLECTED}\nprint('said before', flush=True)\nreceive()\n{code}")
        collect(child)
        child.run("test")
        with pytest.raises(
            PairedError, match=f"the one on main {how}\n  its stderr:\n  said before"
        ) as error:
            child.next_event()
        assert ("no such model" in str(error.value)) == ("model" in code)
        assert child.has_ended, code


@pytest.mark.full
def test_a_run_that_stops_before_it_has_collected_is_an_error(start):
    child = start(
        "print('some words', flush=True); receive(); send(Stopped(why='no GPU here')); time.sleep(600)"
    )
    with pytest.raises(
        PairedError,
        match=r"(?s)the one on main stopped before it had collected: no GPU here.*some words",
    ):
        collect(child)
    assert child.has_ended


@pytest.mark.full
def test_a_process_that_ends_before_its_task_is_an_error(start):
    child = start("sys.exit(4)")
    child._process.wait()
    with pytest.raises(PairedError, match="ended with exit status 4"):
        collect(child)


@pytest.mark.full
def test_a_process_may_be_killed_while_it_stands_still(start):
    child = start(f"{COLLECTED} receive()")
    collect(child)
    os.kill(pid_of(child), signal.SIGKILL)
    with pytest.raises(PairedError, match="ended with SIGKILL"):
        child.run("test")
        child.next_event()
    assert child.has_ended


@pytest.mark.full
def test_the_end_of_a_process_is_noticed_while_a_fork_keeps_its_connection(start, monkeypatch):
    monkeypatch.setattr(process_module, "_GLANCE_S", 0.05)
    child = start(
        f"{COLLECTED} receive(); child = os.fork() or time.sleep(600); os.write(1, str(child).encode() + b'\\n'); os._exit(9)"
    )
    collect(child)
    child.run("test")
    with pytest.raises(PairedError, match="ended with exit status 9") as error:
        child.next_event()
    grandchild = int(str(error.value).split()[-1])
    until(lambda: not state(grandchild))


@pytest.mark.full
def test_a_process_that_closes_its_connection_is_killed(start, monkeypatch):
    monkeypatch.setattr(process_module, "GRACE_S", 0.05)
    child = start(f"{COLLECTED} channel.close(); time.sleep(600)")
    collect(child)
    with pytest.raises(PairedError, match="the one on main closed its connection"):
        child.next_event()
    assert not state(pid_of(child))


def test_a_process_that_hangs_is_killed(start):
    child = start(f"print('deep in thought', flush=True); {COLLECTED} time.sleep(600)")
    collect(child)
    with pytest.raises(PairedError, match=r"(?s)did not answer within 0 s.*deep in thought"):
        child.next_event(0.1)
    assert not state(pid_of(child))
    assert child.has_ended


@pytest.mark.full
def test_a_silent_process_is_killed_by_default_too(start, monkeypatch):
    monkeypatch.setattr(process_module, "READY_S", 0.1)
    with pytest.raises(PairedError, match="did not answer"):
        collect(start("time.sleep(600)"))


@pytest.mark.full
def test_a_long_message_arrives(start):
    long = "x" * 3_000_000
    child = start(f"{COLLECTED} send(Ran(step_s=len(receive().test))); receive()")
    collect(child)
    child.run(long)
    assert child.next_event() == Ran(step_s=len(long))


@pytest.mark.full
def test_a_process_that_does_not_read_is_killed(start, monkeypatch):
    monkeypatch.setattr(process_module, "READY_S", 0.1)
    with pytest.raises(PairedError, match="did not answer within 0 s"):
        collect(start("time.sleep(600)"), "x" * 3_000_000)


@pytest.mark.full
def test_a_closed_process_ends_in_order(start, tmp_path):
    child = start(f"{COLLECTED} assert receive() is None; open('orderly', 'w')")
    collect(child)
    child.close()
    child.close()
    child.kill()
    assert (tmp_path / "orderly").exists()
    assert child._process.returncode == 0


@pytest.mark.full
def test_an_interrupted_process_ends_in_order(start, tmp_path):
    child = start(
        f"try: {COLLECTED} time.sleep(600)\nexcept KeyboardInterrupt: open('orderly', 'w')"
    )
    collect(child)
    child.send(Done())
    child.interrupt()
    child.interrupt()
    assert (tmp_path / "orderly").exists()
    assert child._process.returncode == 0


@pytest.mark.full
def test_a_closed_process_that_does_not_end_is_killed(start, monkeypatch):
    monkeypatch.setattr(process_module, "GRACE_S", 0.05)
    child = start(f"{COLLECTED} time.sleep(600)")
    collect(child)
    child.close()
    assert child._process.returncode == -signal.SIGKILL


@pytest.mark.full
def test_the_cleanup_ends_a_process_with_its_child_processes(start, cleanup):
    child = start(
        "child = subprocess.Popen(['sleep', '600']); receive(); send(Collected(tests=[], profiled=[], errors={'': str(child.pid)})); receive()"
    )
    collect(child)
    grandchild = int(child.errors_of("test_a.py"))
    cleanup.close()
    until(lambda: not state(grandchild) and not state(pid_of(child)))


@pytest.mark.full
def test_output_is_shown_or_kept(start, capfd):
    shown = start(f"os.write(1, b'shown'); {COLLECTED}", shows_output=True)
    collect(shown)
    kept = start(f"os.write(2, b'kept'); {COLLECTED}")
    collect(kept)
    assert (shown.output(), kept.output()) == ("", "\n  its stderr:\n  kept")
    assert capfd.readouterr().out == "shown"


@pytest.mark.full
def test_a_process_runs_on_its_cores_alone(start):
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    child = start(
        "receive(); send(Collected(tests=[str(c) for c in os.sched_getaffinity(0)], profiled=[], errors={}))",
        cores=[core],
    )
    collect(child)
    assert child.collected == {str(core)}
    assert os.sched_getaffinity(0) == before


@pytest.mark.full
def test_a_test_that_was_not_collected_is_an_error_with_those_of_its_file(start):
    for errors, said in (
        ({"test_b.py": "E1"}, "\nE1"),
        ({}, "collected a second time, the tests have other names"),
    ):
        child = start(f"receive(); send(Collected(tests=['a'], profiled=[], errors={errors!r}))")
        child.send(task())
        with pytest.raises(
            PairedError, match=r"the one on main has no test of this name:"
        ) as error:
            child.await_collected("test_b.py::test")
        assert said in str(error.value)
