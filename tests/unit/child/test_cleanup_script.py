"""Lines and process groups of the cleanup process; tests/processes/child/test_cleanup.py has whole ones."""

import io
import os
import signal

import pytest

from pytest_tfperf.child import cleanup_script


@pytest.fixture
def killed(monkeypatch):
    """The signals that would be sent: nothing is."""
    sent = []
    monkeypatch.setattr(os, "killpg", lambda *signalled: sent.append(signalled))
    monkeypatch.setattr(cleanup_script, "GRACE_S", 0.0)
    return sent


@pytest.fixture
def cleaned(killed, monkeypatch, tmp_path):
    """Runs the script on lines; gives the groups that were killed."""
    folder = tmp_path / "folder"

    def cleaned(lines):
        folder.mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["cleanup_script.py", str(folder)])
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        cleanup_script.main()
        assert not folder.exists()
        return [group for group, number in killed if number == signal.SIGKILL]

    return cleaned


@pytest.fixture
def starts(monkeypatch):
    """When the first process of a group has started, as a test says."""
    starts = {}
    monkeypatch.setattr(cleanup_script, "_started", starts.get)
    return starts


@pytest.mark.parametrize("end", [cleanup_script.END, ""])
def test_groups_are_killed_that_were_added_and_not_removed(cleaned, end):
    assert cleaned(f"+4000001\n+4000002\n-4000001\n{end}") == [4000002]


def test_no_line_kills_all_processes_or_ends_the_cleanup(cleaned, killed):
    """`killpg(1, …)` is `kill(-1, …)`: each process that this user may signal."""
    for line in ["+1", "+0", "+-1", "+", "", "+x", "4000009", "-4000009"]:
        assert cleaned(f"{line}\n+4000001\n") == [4000001], line
        killed.clear()


def test_a_line_that_the_end_of_its_process_cut_names_no_group(cleaned, killed):
    assert cleaned("+4000001\n+40000") == [4000001]
    assert {group for group, _ in killed} == {4000001}


def test_a_group_whose_id_another_process_has_now_is_not_signalled(killed, starts, monkeypatch):
    starts.update({4000001: "100", 4000002: "100"})
    groups = cleanup_script.Groups()
    groups.read("+4000001\n")
    groups.read("+4000002\n")
    starts[4000001] = "999"
    groups.kill()
    assert killed == [(4000002, signal.SIGKILL)]


def test_a_group_whose_first_process_has_ended_is_signalled(killed, starts):
    starts[4000001] = "100"
    groups = cleanup_script.Groups()
    groups.read("+4000001\n")
    del starts[4000001]
    groups.kill()
    assert killed == [(4000001, signal.SIGKILL)], "no other group gets its id while it lives"


def test_a_group_that_ended_while_others_had_time_is_not_killed(starts, monkeypatch):
    def killpg(group, number):
        sent.append((group, number))
        if group == 4000001 and number != signal.SIGINT:
            raise ProcessLookupError

    sent = []
    monkeypatch.setattr(os, "killpg", killpg)
    monkeypatch.setattr(cleanup_script, "GRACE_S", 0.0)
    groups = cleanup_script.Groups()
    for group in (4000001, 4000002):
        groups.read(f"+{group}\n")
    groups.interrupt()
    groups.kill()
    assert [group for group, number in sent if number == signal.SIGKILL] == [4000002]


def test_the_start_of_a_process_is_the_kernel_s():
    own = cleanup_script._started(os.getpid())
    assert own == cleanup_script._started(os.getpid())
    assert own not in (None, cleanup_script._started(1))
    assert cleanup_script._started(4000001) is None
