"""The coordinator of workers, with processes that only answer."""

from types import SimpleNamespace

import pytest
from helpers.builders import profile

from pytest_tfperf.child.process import ProcessLost
from pytest_tfperf.cluster import worker_processes
from pytest_tfperf.cluster.worker_calls import WorkersCall
from pytest_tfperf.cluster.worker_processes import WorkerClient, WorkerProcesses
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.machine.locks import measuring_anyway

SILENT = object()


class Child:
    def __init__(self, who, events):
        self.label, self._events = f"the process of {who}", events
        self.said, self.closed, self.killed = [], False, False

    def event_within(self, seconds):
        event = next(self._events, SILENT)
        if event is SILENT:
            raise TimeoutError
        if isinstance(event, Exception):
            raise event
        return event

    def run(self, test, following, part):
        self.said.append(part)

    def send(self, **message):
        self.said.append(message)

    def output(self):
        return "\n  its last line"

    def close(self):
        self.closed = True

    def kill(self):
        self.killed = True


class SameTest:
    key = "test_x.py::test"

    def __init__(self, events):
        self._events, self.children, self.environments = events, [], []

    def start(self, who, cleanup, environment, **changes):
        assert changes == {"pauses": False}
        self.environments.append(environment)
        self.children.append(Child(who, self._events[len(self.children) % len(self._events)]))
        return self.children[-1]

    def await_collected(self, child):
        pass

    def failed(self, child, who, event):
        return CaptureError(f"{who} fails: {event}")


@pytest.fixture
def run(monkeypatch):
    """Run a call whose workers send these events; return the profiles and the test."""

    def run(*events):
        test = SameTest([iter(worker) for worker in events])
        monkeypatch.setattr(worker_processes, "SameTest", lambda *_: test)
        monkeypatch.setattr(worker_processes, "Cleanup", lambda: SimpleNamespace(close=list))
        processes = WorkerProcesses(None, lambda _: None, measuring_anyway)
        call = WorkersCall(names=[f"w{n}" for n in range(len(events))], measure=None)
        run.test = test
        return processes(call)

    return run


def profiled(name):
    return {"profiled": profile(name, retraces=1).to_json()}


def test_profiles_come_in_the_order_of_the_workers(run):
    found = run([SILENT, SILENT, profiled("a")], [profiled("b")], [SILENT, profiled("c")])
    assert [one.name for one in found] == ["a", "b", "c"]
    for index, child in enumerate(run.test.children):
        assert child.said == [
            {"worker": f"w{index}", "profile": None, "earlier": []},
            {"done": True},
        ]
        assert child.closed
    assert len({one["TF_CONFIG"] for one in run.test.environments}) == 3


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ProcessLost("the process of worker 1", "ended with SIGKILL", ""), "ended with SIGKILL"),
        ({"ended": True}, "worker 1 fails"),
    ],
)
def test_one_that_fails_ends_all_at_once(run, event, message):
    with pytest.raises(CaptureError, match=message):
        run([SILENT] * 1000, [SILENT, event])
    assert all(child.killed for child in run.test.children)


def test_a_worker_that_died_is_the_cause_of_the_errors_of_others(run):
    """Whichever is seen first: TensorFlow fails in the others as soon as one is gone."""
    lost = ProcessLost("the process of worker 1", "ended with SIGKILL", "")
    with pytest.raises(CaptureError, match="the process of worker 1 ended with SIGKILL"):
        run([SILENT, {"ended": True}], [SILENT, lost], [SILENT] * 9)


def test_workers_run_again_after_a_crash_that_is_seen_after_its_errors(run):
    found = run([{"ended": True}, profiled("a")], [crash(), profiled("b")])
    assert [one.name for one in found] == ["a", "b"]


def crash(status="SIGSEGV"):
    return ProcessLost("the process of worker 1", f"ended with {status}", "")


@pytest.mark.parametrize("status", ["SIGSEGV", "SIGABRT"])
def test_workers_run_again_after_a_crash_of_tensorflow(run, status):
    found = run([SILENT, profiled("a")], [crash(status), profiled("b")])
    assert [one.name for one in found] == ["a", "b"]
    assert len(run.test.children) == 4


def test_the_fifth_crash_is_an_error(run):
    with pytest.raises(CaptureError, match="the process of worker 1 ended with SIGSEGV"):
        run([SILENT] * 100, [crash()] * 5)
    assert len(run.test.children) == 10


def test_one_that_hangs_is_named_with_its_output(run, monkeypatch):
    monkeypatch.setattr(worker_processes, "READY_S", 0.0)
    with pytest.raises(CaptureError) as error:
        run([profiled("a")], [])
    assert str(error.value) == "the process of worker 1 did not answer within 0 s\n  its last line"


class Server:
    def __init__(self):
        self.asked = []

    def ask(self, **question):
        self.asked.append(question)


def test_a_worker_answers_earlier_calls_and_ends_with_its_own():
    server = Server()
    earlier = [{"profiles": [profile("a").to_json()]}, {"error": "it failed"}]
    client = WorkerClient(server, {"worker": "w1", "earlier": earlier})
    call = WorkersCall(names=["w0", "w1"], measure=lambda: profile("mine"))
    assert [one.name for one in client(call)] == ["a"]
    with pytest.raises(CaptureError, match="it failed"):
        client(call)
    with pytest.raises(pytest.exit.Exception):
        client(call)
    [question] = server.asked
    assert question["profiled"]["name"] == "mine"


def test_a_call_of_other_workers_is_refused():
    client = WorkerClient(Server(), {"worker": "w1", "earlier": []})
    with pytest.raises(CaptureError, match="this call of workers has other profiles: a, b and no"):
        client(WorkersCall(names=["a", "b"], measure=None))
