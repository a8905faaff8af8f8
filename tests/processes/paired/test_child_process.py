"""A process as its referee sees it: what it says, that it stands still else, and how its end becomes known. Plain Python plays."""

import os
import signal
import sys

import pytest
from helpers.processes import state, until
from helpers.scripted_side import speaking

from pytest_tfperf.child import process as player_module
from pytest_tfperf.child.process import Player
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.cores import pinned

COLLECTED = (
    "task = hear(); say(collected=['test_a.py::test'], profiled=['test_a.py::test'], errors={});"
)


@pytest.fixture
def play(janitor, tmp_path):
    """Starts a player that runs this code."""
    players = []

    def start(code, cores=(), environment=None, shows_output=False):
        players.append(
            Player(
                "the one on main",
                speaking(code),
                tmp_path,
                environment or {},
                cores,
                janitor,
                shows_output,
            )
        )
        return players[-1]

    yield start
    for one in players:
        one.kill()


def collect(player, **task):
    """Name a task, and wait until it has collected."""
    player.say(**task)
    player.await_collected()


def pid_of(player):
    return player._process.pid


def test_it_cannot_be_started(janitor, tmp_path):
    with pytest.raises(PairedError, match=r"the one on main cannot be started in .*nowhere: "):
        Player("the one on main", lambda _: [sys.executable], tmp_path / "nowhere", {}, (), janitor)


def test_it_collects(play, tmp_path):
    player = play(
        "task = hear(); say(collected=[os.getcwd(), os.environ['A'], *task['files']], profiled=[], errors={})",
        environment={"A": "b"},
    )
    collect(player, files=["test_a.py"])
    assert player.collected == {str(tmp_path), "b", "test_a.py"}


@pytest.mark.parametrize(
    ("errors", "file", "text"),
    [
        ({"tests/test_a.py": "E1", "tests/test_b.py": "E2"}, "tests/test_a.py::test", "E1"),
        ({"tests": "E1", "test": "E2"}, "tests/deep/test_a.py::TestA::test[x::y]", "E1"),
        ({"": "E1", ".": "E2"}, "test_a.py::test", "E1\nE2"),
        ({"tests/test_a": "E1"}, "tests/test_a.py::test", ""),
        ({}, "test_a.py::test", ""),
    ],
)
def test_errors_of_a_file_are_its_own_and_those_of_its_folders(play, errors, file, text):
    player = play(f"hear(); say(collected=[], profiled=[], errors={errors!r})")
    collect(player)
    assert player.errors_of(file) == text


def test_it_stands_still_but_when_it_is_asked(play):
    player = play(f"{COLLECTED} hear(); say(turn=1); time.sleep(600)")
    collect(player)
    assert state(pid_of(player)) == "T"
    player.say(go=True)
    assert player.next_event() == {"turn": 1}
    until(lambda: state(pid_of(player)) == "T")


def test_what_it_has_started_stands_still_with_it(play):
    player = play(
        "child = subprocess.Popen(['sleep', '600']); hear(); say(collected=[], profiled=[], errors={'': str(child.pid)}); hear()"
    )
    collect(player)
    child = int(player.errors_of("test_a.py"))
    until(lambda: state(child) == "T")
    player.kill()
    assert not state(pid_of(player))
    until(lambda: not state(child))


def test_reports_and_warnings_of_the_running_test(play):
    player = play(
        f"{COLLECTED}\nfor i in range(2): say(warning=hear()['run']); say(report={{'i': i}}); say(ended=True)"
    )
    collect(player)
    player.run("test_a.py::test", None)
    assert player.next_event() == {"ended": True}
    assert (player.reports, player.warnings) == ([{"i": 0}], ["test_a.py::test"])
    player.run("again", None)
    player.next_event()
    assert (player.reports, player.warnings) == ([{"i": 1}], ["again"])


def test_an_event_that_is_put_back_is_the_next(play):
    player = play(f"{COLLECTED} hear(); say(a=1); hear(); say(b=2); hear()")
    collect(player)
    player.say()
    player.put_back(player.next_event())
    player.end_turns()  # nobody waits for turns
    assert player.next_event() == {"a": 1}
    player.end_turns()
    assert player.next_event() == {"b": 2}


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("sys.exit(3)", "ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended with SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("raise ValueError('no such model')", "ended with exit status 1"),
    ],
)
def test_its_end_is_told_with_its_output(play, code, how):
    player = play(f"{COLLECTED}\nprint('said before', flush=True)\nhear()\n{code}")
    collect(player)
    player.run("test", None)
    with pytest.raises(
        PairedError, match=f"the one on main {how}\n  its stderr:\n  said before"
    ) as error:
        player.next_event()
    assert ("no such model" in str(error.value)) == ("model" in code)
    assert player.has_ended


def test_it_stops_before_it_has_collected(play):
    player = play(
        "print('some words', flush=True); hear(); say(stopped='no GPU here'); time.sleep(600)"
    )
    with pytest.raises(
        PairedError,
        match=r"(?s)the one on main stopped before it had collected: no GPU here.*some words",
    ):
        collect(player)
    assert player.has_ended


def test_its_end_before_it_hears(play):
    player = play("sys.exit(4)")
    player._process.wait()
    with pytest.raises(PairedError, match="ended with exit status 4"):
        collect(player)


def test_it_is_killed_while_it_stands_still(play):
    player = play(f"{COLLECTED} hear()")
    collect(player)
    os.kill(pid_of(player), signal.SIGKILL)
    with pytest.raises(PairedError, match="ended with SIGKILL"):
        player.run("test", None)
        player.next_event()
    assert player.has_ended


def test_its_end_is_known_though_what_it_forked_keeps_its_connection(play, monkeypatch):
    monkeypatch.setattr(player_module, "_GLANCE_S", 0.05)
    player = play(
        f"{COLLECTED} hear(); child = os.fork() or time.sleep(600); os.write(1, str(child).encode() + b'\\n'); os._exit(9)"
    )
    collect(player)
    player.run("test", None)
    with pytest.raises(PairedError, match="ended with exit status 9") as error:
        player.next_event()
    child = int(str(error.value).split()[-1])
    until(lambda: not state(child))


def test_it_closes_its_connection_and_lives_on(play, monkeypatch):
    monkeypatch.setattr(player_module, "GRACE_S", 0.05)
    player = play(f"{COLLECTED} lines.close(); channel.close(); time.sleep(600)")
    collect(player)
    with pytest.raises(PairedError, match="the one on main closed its connection"):
        player.next_event()
    assert not state(pid_of(player))


def test_it_hangs(play):
    player = play(f"print('deep in thought', flush=True); {COLLECTED} time.sleep(600)")
    collect(player)
    with pytest.raises(PairedError, match=r"(?s)did not answer within 0 s.*deep in thought"):
        player.next_event(0.1)
    assert not state(pid_of(player))
    assert player.has_ended


def test_one_that_never_says_a_word_hangs_too(play, monkeypatch):
    monkeypatch.setattr(player_module, "READY_S", 0.1)
    with pytest.raises(PairedError, match="did not answer"):
        collect(play("time.sleep(600)"))


def test_a_long_message_is_no_deadlock(play, monkeypatch):
    long = "x" * 3_000_000
    player = play(f"{COLLECTED} say(length=len(hear()['text'])); hear()")
    collect(player)
    player.say(text=long)
    assert player.next_event() == {"length": len(long)}


def test_who_does_not_listen_to_a_long_message_is_ended(play, monkeypatch):
    monkeypatch.setattr(player_module, "READY_S", 0.1)
    with pytest.raises(PairedError, match="did not answer within 0 s"):
        collect(play("time.sleep(600)"), files=["x" * 3_000_000])


def test_it_ends_in_order_when_it_is_closed(play, tmp_path):
    player = play(f"{COLLECTED} assert hear() is None; open('orderly', 'w')")
    collect(player)
    player.close()
    player.close()
    player.kill()
    assert (tmp_path / "orderly").exists()
    assert player._process.returncode == 0


def test_it_ends_in_order_when_it_is_interrupted(play, tmp_path):
    player = play(
        f"try: {COLLECTED} time.sleep(600)\nexcept KeyboardInterrupt: open('orderly', 'w')"
    )
    collect(player)
    player.say()
    player.interrupt()
    player.interrupt()
    assert (tmp_path / "orderly").exists()
    assert player._process.returncode == 0


def test_one_that_does_not_end_is_killed(play, monkeypatch):
    monkeypatch.setattr(player_module, "GRACE_S", 0.05)
    player = play(f"{COLLECTED} time.sleep(600)")
    collect(player)
    player.close()
    assert player._process.returncode == -signal.SIGKILL


def test_the_janitor_ends_it_with_all_that_it_has_started(play, janitor):
    player = play(
        "child = subprocess.Popen(['sleep', '600']); hear(); say(collected=[], profiled=[], errors={'': str(child.pid)}); hear()"
    )
    collect(player)
    child = int(player.errors_of("test_a.py"))
    janitor.close()
    until(lambda: not state(child) and not state(pid_of(player)))


def test_its_output_is_shown_or_kept(play, capfd):
    shown = play(f"os.write(1, b'shown'); {COLLECTED}", shows_output=True)
    collect(shown)
    kept = play(f"os.write(2, b'kept'); {COLLECTED}")
    collect(kept)
    assert (shown.output(), kept.output()) == ("", "\n  its stderr:\n  kept")
    assert capfd.readouterr().out == "shown"


def test_it_runs_on_its_cores_alone(play):
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    player = play(
        "hear(); say(collected=[str(c) for c in os.sched_getaffinity(0)], profiled=[], errors={})",
        cores=[core],
    )
    collect(player)
    assert player.collected == {str(core)}
    assert os.sched_getaffinity(0) == before


def test_pinned_within_a_context_alone():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), pinned([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with pinned([]):
        assert os.sched_getaffinity(0) == before
