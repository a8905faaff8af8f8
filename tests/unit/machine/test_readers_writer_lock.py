"""The readers–writer lock where no other process has it; `tests/processes/machine` has those."""

from pytest_tfperf.machine import readers_writer_lock
from pytest_tfperf.machine.readers_writer_lock import ReadersWriterLock


def test_without_record_locks_nobody_is_alone_and_nobody_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(readers_writer_lock, "fcntl", None)
    lock = ReadersWriterLock(tmp_path / "run.lock")
    with lock.shared(), lock.alone(60) as alone:
        assert not alone
