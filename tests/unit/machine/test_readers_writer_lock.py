"""The readers–writer lock where no other process has it; `tests/processes/machine` has those."""

from pytest_tfperf.machine import locks
from pytest_tfperf.machine.locks import ReadersWriterLock


def test_without_record_locks_nobody_is_alone_and_nobody_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    lock = ReadersWriterLock(tmp_path / "run.lock")
    with lock.shared(), lock.alone(60) as alone:
        assert not alone
