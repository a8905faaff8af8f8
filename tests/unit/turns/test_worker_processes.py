"""The coordinator of workers, with processes that only answer."""

from contextlib import contextmanager

import pytest
from helpers.builders import profile

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.turns import children as children_module
from pytest_tfperf.turns import workers as worker_processes
from pytest_tfperf.turns.messages import Done, Ended, Measured, Part
from pytest_tfperf.turns.pytest_child import ProcessLost
from pytest_tfperf.turns.workers import WorkerProcesses, WorkersCall

SILENT = object()


class Child:
    reports = ()

    def __init__(self, who, events):
        self.label, self._events = f"the process of {who}", events
        self.said = []

    def event_within(self, seconds):
        event = next(self._events, SILENT)
        if event is SILENT:
            raise TimeoutError
        if isinstance(event, Exception):
            raise event
        return event

    def run(self, test, part):
        self.said.append(part)

    def send(self, message):
        self.said.append(message)

    def output(self):
        return "\n  its last line"


@pytest.fixture
def run(monkeypatch):
    """Run a call whose workers send these events; return the profiles."""

    def run(*events):
        run.children, run.environments = [], []
        events = [iter(worker) for worker in events]

        @contextmanager
        def children(item, specs, grace_s):
            started = [Child(spec.who, one) for spec, one in zip(specs, events, strict=True)]
            run.children += started
            run.environments += [spec.environment for spec in specs]
            yield started

        monkeypatch.setattr(worker_processes, "children", children)
        monkeypatch.setattr(children_module, "test_key", lambda item: "test_x.py::test")
        processes = WorkerProcesses(None, lambda _: None, measuring_anyway)
        return processes(WorkersCall(names=[f"w{n}" for n in range(len(events))], measure=None))

    return run


def profiled(name):
    return Measured(profile=profile(name, retraces=1))


def test_profiles_come_in_the_order_of_the_workers(run):
    found = run([SILENT, SILENT, profiled("a")], [profiled("b")], [SILENT, profiled("c")])
    assert [one.name for one in found] == ["a", "b", "c"]
    for index, child in enumerate(run.children):
        assert child.said == [Part(call="workers", name=f"w{index}"), Done()]
    assert len({one["TF_CONFIG"] for one in run.environments}) == 3


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ProcessLost("the process of worker 1", "ended with SIGKILL", ""), "ended with SIGKILL"),
        (Ended(), "worker 1 came to the end of the test without this call of workers"),
    ],
)
def test_one_that_fails_ends_the_wait_for_all(run, event, message):
    with pytest.raises(CaptureError, match=message):
        run([SILENT] * 1000, [SILENT, event])


def test_a_worker_that_died_is_the_cause_of_the_errors_of_others(run):
    """Whichever is seen first: TensorFlow fails in the others as soon as one is gone."""
    lost = ProcessLost("the process of worker 1", "ended with SIGKILL", "")
    with pytest.raises(CaptureError, match="the process of worker 1 ended with SIGKILL"):
        run([SILENT, Ended()], [SILENT, lost], [SILENT] * 9)


def test_workers_run_again_after_a_crash_that_is_seen_after_its_errors(run):
    found = run([Ended(), profiled("a")], [crash(), profiled("b")])
    assert [one.name for one in found] == ["a", "b"]


def crash(status="SIGSEGV"):
    return ProcessLost("the process of worker 1", f"ended with {status}", "")


@pytest.mark.parametrize("status", ["SIGSEGV", "SIGABRT"])
def test_workers_run_again_after_a_crash_of_tensorflow(run, status):
    found = run([SILENT, profiled("a")], [crash(status), profiled("b")])
    assert [one.name for one in found] == ["a", "b"]
    assert len(run.children) == 4


def test_the_fifth_crash_is_an_error(run):
    with pytest.raises(CaptureError, match="the process of worker 1 ended with SIGSEGV"):
        run([SILENT] * 100, [crash()] * 5)
    assert len(run.children) == 10


def test_one_that_hangs_is_named_with_its_output(run, monkeypatch):
    monkeypatch.setattr(worker_processes, "READY_S", 0.0)
    with pytest.raises(CaptureError) as error:
        run([profiled("a")], [])
    assert str(error.value) == "the process of worker 1 did not answer within 0 s\n  its last line"
