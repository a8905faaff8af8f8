"""The file of a history's local index: private, bounded, trusted only if it is sound, and never half written."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time

import duckdb
import pytest
from filelock import FileLock
from helpers.histories import run_at, store_of
from helpers.paths import TESTS
from helpers.row_indexes import added, cache_in, index_of, three_runs

from pytest_tfperf.cli.main import main
from pytest_tfperf.run_history import row_index
from pytest_tfperf.run_history.opening import open_store
from pytest_tfperf.run_history.stores import HistoryError, Selection

STEP_TIMES = Selection(project="demo", metrics=("step_time",))
COUNT = "SELECT count(*) FROM runs WHERE metric = 'step_time'"
ASK = """
import sys
from pytest_tfperf.run_history.opening import open_store
from pytest_tfperf.run_history.stores import Selection
print("ready", flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1])
rows = store.rows(Selection(project="demo", metrics=("step_time",)))
print(len(rows), len({row.run for row in rows}), len(store.unread))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return cache_in(tmp_path, monkeypatch)


@pytest.fixture
def address(tmp_path):
    return three_runs(tmp_path)


def n_runs(address):
    store = open_store(address)
    found = len(store.rows(STEP_TIMES))
    assert not store.unread
    return found


def asking(address):
    """A process that waits for a line, and then asks a history."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    one = subprocess.Popen(
        [sys.executable, "-c", ASK, address],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert one.stdout.readline() == "ready\n"
    return one


def flipped(content, number):
    changed = bytearray(content)
    changed[len(content) * number // 8 + 100] ^= 0x10
    return bytes(changed)


def foreign(path):
    with duckdb.connect(str(path)) as base:
        base.execute("CREATE TABLE objects (id INTEGER, path VARCHAR)")
        base.execute("CREATE VIEW rows AS SELECT * FROM read_text('/etc/hostname')")


def of_sqlite(path):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE objects (id INTEGER, path TEXT)")
    base.commit()
    base.close()


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"no database" * 1000),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    **{
        f"bit {n}": lambda path, n=n: path.write_bytes(flipped(path.read_bytes(), n))
        for n in range(8)
    },
    "other tables": lambda path: (path.unlink(), foreign(path)),
    "SQLite": lambda path: (path.unlink(), of_sqlite(path)),
    "open to all": lambda path: path.chmod(0o644),
    "a link": lambda path: (
        path.rename(path.with_name("other")),
        path.symlink_to(path.with_name("other")),
    ),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["whole", pytest.param("bit", marks=pytest.mark.nightly)])
def test_an_index_that_cannot_be_trusted_is_made_anew(tmp_path, monkeypatch, kind):
    for name, damage in DAMAGES.items():
        if name.startswith("bit") == (kind == "bit"):
            with monkeypatch.context() as patch:
                folder = tmp_path / name
                patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
                _check_damaged(folder, damage, patch)


def _check_damaged(folder, damage, patch):
    cache, address = folder / "cache/pytest-tfperf/history", str(folder / "store")
    store_of(run_at(0), run_at(1), run_at(2), store=open_store(address)).rows(STEP_TIMES)
    index = index_of(cache)
    damage(index)
    kept = cache / "other"
    before = kept.read_bytes() if kept.exists() else b""
    store_of(run_at(3), store=open_store(address))
    for _ in range(3):
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 4, folder
        assert not store.unread, folder
        assert store.sql(COUNT, "demo").rows == ((4,),), folder
    assert stat.S_ISREG(index.lstat().st_mode), folder
    assert stat.S_IMODE(index.lstat().st_mode) == 0o600, folder
    assert (kept.read_bytes() if kept.exists() else b"") == before, folder
    lists = added(patch)
    open_store(address).rows(STEP_TIMES)
    assert lists == [], folder


def test_an_index_of_another_user_is_not_used(address, cache, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root may give a file to another user")
    n_runs(address)
    os.chown(index_of(cache), 12345, 12345)
    lists = added(monkeypatch)
    assert n_runs(address) == 3
    assert [len(one) for one in lists] == [3]
    assert index_of(cache).stat().st_uid == os.getuid()


@pytest.mark.parametrize("taken", ["a link", "a file"])
def test_a_folder_that_is_taken_is_not_used(address, cache, tmp_path, taken):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache.parent.mkdir(parents=True)
    if taken == "a link":
        cache.symlink_to(elsewhere)
    else:
        cache.write_text("taken")
    assert [n_runs(address), n_runs(address)] == [3, 3]
    assert list(elsewhere.iterdir()) == []


def test_only_this_user_can_read_an_index(address, cache):
    usual = os.umask(0)
    try:
        n_runs(address)
    finally:
        os.umask(usual)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.iterdir()} == {0o600}
    cache.chmod(0o755)
    n_runs(address)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.full
def test_a_store_without_objects_leaves_nothing(tmp_path, cache):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        assert n_runs(str(tmp_path / name)) == 0
    assert list(cache.iterdir()) == []


@pytest.mark.full
def test_without_a_cache_a_query_leaves_nothing(address, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.chdir(temporary)
    assert [n_runs(address), n_runs(address)] == [3, 3]
    assert list(temporary.iterdir()) == []


@pytest.fixture
def small_disk(processes, cache):
    """A file system of 2 MB in memory, which the cache is on."""
    cache.parent.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(cache.parent)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root may mount a file system, and not in each container")
    try:
        yield cache.parent
    finally:
        subprocess.run(["umount", str(cache.parent)], check=True)


@pytest.mark.full
@pytest.mark.parametrize(
    "n_free", [0, 20, *(pytest.param(n, marks=pytest.mark.nightly) for n in (4, 100, 300))]
)
def test_a_full_disk_costs_time_only(address, cache, small_disk, n_free):
    def fill():
        free = os.statvfs(small_disk)
        size = free.f_bavail * free.f_frsize - n_free * 4096
        (small_disk / "filler").write_bytes(b"." * max(size, 0))

    fill()
    assert [n_runs(address), n_runs(address)] == [3, 3]
    (small_disk / "filler").unlink()
    assert n_runs(address) == 3
    before = index_of(cache).read_bytes()
    fill()
    store_of(run_at(3), store=open_store(address))
    assert [n_runs(address), n_runs(address)] == [4, 4]
    (small_disk / "filler").unlink()
    if n_free == 0:
        assert index_of(cache).read_bytes() == before
    assert n_runs(address) == 4
    assert not list(cache.glob(".tfperf-tmp-*"))


@pytest.mark.full
def test_no_room_anywhere_is_said(address, monkeypatch, capsys):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_index, "TemporaryFolder", fails)
    words = ["history", "--store", address, "--project", "demo"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "its local index cannot be used: No space left on device" in said
    assert said.count("\n") == 1


@pytest.mark.full
def test_an_index_that_is_too_large_is_not_kept(address, cache, monkeypatch):
    n_runs(address)
    size = index_of(cache).stat().st_size
    for most, n_kept in ((size, 1), (size - 1, 0)):
        index_of(cache).unlink()
        monkeypatch.setattr(row_index, "_MOST_BYTES", most)
        assert [n_runs(address), n_runs(address)] == [3, 3]
        assert len(list(cache.glob("*.duckdb"))) == n_kept, most


@pytest.mark.full
def test_the_indexes_used_last_are_kept(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(row_index, "_MOST_STORES", 3)
    of_store = {}
    for number in range(3):
        address = str(tmp_path / f"store{number}")
        store_of(run_at(number), store=open_store(address))
        before = set(cache.glob("*.duckdb"))
        n_runs(address)
        (of_store[number],) = set(cache.glob("*.duckdb")) - before
        os.utime(of_store[number], (1_000_000 + number, 1_000_000 + number))
    n_runs(str(tmp_path / "store0"))  # used again
    store_of(run_at(3), store=open_store(str(tmp_path / "store3")))
    n_runs(str(tmp_path / "store3"))
    left = set(cache.glob("*.duckdb"))
    assert len(left) == 3
    assert of_store[1] not in left
    assert {path.stem for path in cache.glob("*.lock")} == {path.stem for path in left}


@pytest.mark.full
def test_a_process_that_holds_the_lock_does_not_stop_others(address, cache, monkeypatch):
    n_runs(address)
    monkeypatch.setattr(row_index, "_WAIT_S", 0.05)
    with FileLock(index_of(cache).with_suffix(".lock")):
        assert n_runs(address) == 3
        store_of(run_at(3), store=open_store(address))
        assert n_runs(address) == 4


@pytest.mark.full
@pytest.mark.usefixtures("processes")
def test_processes_at_once(address, cache):
    processes = [asking(address) for _ in range(3)]
    for one in processes:
        one.stdin.write("\n")
        one.stdin.flush()
    assert [one.communicate()[0] for one in processes] == ["3 3 0\n"] * 3
    assert [one.returncode for one in processes] == [0] * 3
    assert sorted(path.suffix for path in cache.iterdir()) == [".duckdb", ".lock"]


@pytest.mark.nightly
@pytest.mark.usefixtures("processes")
def test_killed_processes_leave_an_index_that_is_sound(tmp_path, cache):
    address = str(tmp_path / "store")
    for number in range(25):
        store_of(*(run_at(10 * number + n) for n in range(4)), store=open_store(address))
        one = asking(address)
        one.stdin.write("\n")
        one.stdin.flush()
        time.sleep(0.03 * (number % 20))
        one.send_signal(signal.SIGKILL)
        one.communicate()
        if number % 3 == 0:
            assert n_runs(address) == 4 * (number + 1)
    assert n_runs(address) == 100
    store_of(run_at(500), store=open_store(address))
    assert n_runs(address) == 101
    assert not list(cache.glob(".tfperf-tmp-*"))


def test_sql_reads_no_file(address, tmp_path):
    (tmp_path / "other.csv").write_text("secret\n")
    for query in (
        "SELECT * FROM read_blob('{folder}/other.csv')",
        "SELECT * FROM read_parquet('{folder}/store/**/*.parquet')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM '{folder}/other.csv'",
    ):
        for _ in range(2):  # with a new index, and with one that is there
            with pytest.raises(HistoryError, match="SQL: Permission Error"):
                open_store(address).sql(query.format(folder=tmp_path), "demo")


@pytest.mark.full
def test_a_wrong_query_costs_no_index(address, cache, monkeypatch):
    with pytest.raises(HistoryError, match="SQL: "):
        open_store(address).sql("SELECT * FROM none_such", "demo")
    lists = added(monkeypatch)
    with pytest.raises(HistoryError, match="SQL: "):
        open_store(address).sql("SELECT 1 / none_such FROM runs", "demo")
    assert n_runs(address) == 3
    assert lists == []
