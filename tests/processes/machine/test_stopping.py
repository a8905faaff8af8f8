"""Stopping and pinning of processes, as turns need them."""

import os
import signal
import subprocess

import pytest

from pytest_tfperf.machine import cores
from pytest_tfperf.machine.cores import can_pin, can_stop


def test_processes_can_be_stopped_where_paired_runs_work():
    assert can_stop()


def test_a_system_without_the_signal_cannot_stop(monkeypatch):
    monkeypatch.delattr(signal, "SIGSTOP")
    assert not can_stop()


@pytest.mark.parametrize("swallowed", [signal.SIGSTOP, signal.SIGCONT])
def test_a_sandbox_that_swallows_a_signal_cannot_stop(monkeypatch, swallowed):
    kill = os.kill
    monkeypatch.setattr(
        os, "kill", lambda pid, number: None if number == swallowed else kill(pid, number)
    )
    monkeypatch.setattr(cores, "_PATIENCE_S", 0.05)
    assert not can_stop()


def test_a_sandbox_that_refuses_signals_cannot_stop_and_leaves_nothing(monkeypatch):
    started, popen = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *given, **more: started.append(popen(*given, **more)) or started[-1],
    )

    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not can_stop()
    assert [child.returncode for child in started] == [1]  # its input has ended


@pytest.mark.parametrize("cores", [[], [0]])
def test_one_core_cannot_be_pinned_to(cores):
    assert not can_pin(cores)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
@pytest.mark.parametrize(("after", "said"), [({3}, True), ({3, 5}, False)])
def test_affinity_that_is_not_kept_cannot_pin(monkeypatch, after, said):
    held = [{3, 5}, after]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: held[0])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: held.reverse())
    assert can_pin([3, 5]) is said


def test_affinity_that_is_refused_cannot_pin(monkeypatch):
    def refuse(_, cores):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    assert not can_pin([0, 1])
