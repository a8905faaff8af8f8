"""Stopping of processes, as turns need them."""

import os
import signal
import subprocess

import pytest

from pytest_tfperf.machine import cores
from pytest_tfperf.machine.cores import can_stop

pytestmark = pytest.mark.usefixtures("processes")


def test_processes_can_be_stopped_where_paired_runs_work(monkeypatch):
    assert can_stop()
    monkeypatch.delattr(signal, "SIGSTOP")  # a system without the signal
    assert not can_stop()


@pytest.mark.full
def test_a_sandbox_that_swallows_a_signal_cannot_stop(monkeypatch):
    monkeypatch.setattr(cores, "_PATIENCE_S", 0.05)
    kill = os.kill
    for swallowed in (signal.SIGSTOP, signal.SIGCONT):

        def swallow(pid, number, swallowed=swallowed):
            return None if number == swallowed else kill(pid, number)

        monkeypatch.setattr(os, "kill", swallow)
        assert not can_stop(), swallowed


@pytest.mark.full
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
