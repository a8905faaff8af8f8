"""Failures of a test in a process of its own, as messages of this one."""

from types import SimpleNamespace

import pytest
from helpers.builders import profile

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.turns import children
from pytest_tfperf.turns.children import Calls, Replay, Spec
from pytest_tfperf.turns.messages import Answer, Ended, Failed, Measured, Part


@pytest.mark.parametrize("n_lines", [1, 500])
def test_the_error_is_shown_however_much_was_printed(monkeypatch, n_lines):
    printed = "".join(f"W0000 line {n}\n" for n in range(n_lines))
    report = SimpleNamespace(
        failed=True,
        longreprtext="traceback\nE   ValueError: a bad step",
        sections=[("Captured stdout call", "  \n"), ("Captured stderr call", printed)],
    )
    monkeypatch.setattr(children, "report_from", lambda item, data: report)
    child = SimpleNamespace(reports=["of the test"])
    calls = Calls(None, "workers", announce=None, exclusive=None)
    found = calls.ended_early(child, Spec(who="worker 0"), Ended())
    lines = str(found).splitlines()
    assert lines[:3] == [
        "worker 0 fails in its process:",
        "  traceback",
        "  E   ValueError: a bad step",
    ]
    assert lines[-1] == f"  W0000 line {n_lines - 1}"
    assert len(lines) < 40


class Server:
    def __init__(self):
        self.asked = []

    def ask(self, answer):
        self.asked.append(answer)


def test_a_process_answers_earlier_calls_and_ends_with_its_own():
    one = Answer(profiles={"a": profile("a", retraces=1)})
    failed = [Failed(message="it failed", is_assertion=is_one) for is_one in (False, True)]
    part = Part(call="compare", name="b", profile="two b", earlier=(one, *failed))
    server, names = Server(), {"a": "two a", "b": "two b"}
    replay = Replay(server, part)
    assert replay.earlier({}) == one
    for error in (CaptureError, AssertionError):
        with pytest.raises(error, match="it failed"):
            replay.earlier({})
    assert replay.earlier(names) is None
    with pytest.raises(pytest.exit.Exception):
        replay.end(Measured(profile=profile("two b", retraces=1)))
    assert server.asked == [Measured(profile=profile("two b", retraces=1))]


def test_a_call_with_other_profiles_is_refused():
    replay = Replay(Server(), Part(call="workers", name="worker 1"))
    with pytest.raises(
        CaptureError, match="this call of workers has other profiles: a, b and no worker 1"
    ):
        replay.earlier({"a": "a", "b": "b"})
