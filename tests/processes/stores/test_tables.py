"""Rows as Parquet files, by the database that each process keeps."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import duckdb
import pytest

from pytest_tfperf.stores.tables import rows_as_parquet

pytestmark = pytest.mark.full

COLUMNS = {"number": "INTEGER", "text": "VARCHAR"}


def rows(number):
    return [{"number": number, "text": f"{number}.{n}"} for n in range(50)]


def content_of(parquet, folder):
    file = folder / "rows.parquet"
    file.write_bytes(parquet)
    with closing(duckdb.connect()) as base:
        found = base.execute("SELECT * FROM read_parquet($file)", {"file": str(file)}).fetchall()
    return [{"number": number, "text": text} for number, text in found]


def test_threads_write_their_own_rows(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: rows_as_parquet(rows(number), COLUMNS), range(40)))
    assert [content_of(one, tmp_path) for one in found] == [rows(number) for number in range(40)]


@pytest.mark.usefixtures("processes")
@pytest.mark.filterwarnings("ignore:os.fork")  # JAX warns, if a test before imported it
@pytest.mark.filterwarnings("ignore:Exception ignored")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_fork_writes_rows_as_its_parent_did(tmp_path):
    rows_as_parquet(rows(1), COLUMNS)
    fork = multiprocessing.get_context("fork")
    file = tmp_path / "of_child"
    child = fork.Process(target=lambda: file.write_bytes(rows_as_parquet(rows(2), COLUMNS)))
    child.start()
    child.join(60)
    assert child.exitcode == 0, "it did not end"
    assert content_of(file.read_bytes(), tmp_path) == rows(2)
