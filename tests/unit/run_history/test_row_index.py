"""The local index of a history: the same rows as without it, whatever happens to its file."""

import os
import random
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import duckdb
import fsspec
import pytest
from helpers.builders import LAPTOP, SERVER
from helpers.histories import run_at, store_of
from helpers.row_indexes import added, cache_in, index_of, three_runs

from pytest_tfperf.baseline.store import machine_slug
from pytest_tfperf.run_history import duck, index_tables
from pytest_tfperf.run_history.opening import open_store
from pytest_tfperf.run_history.rows import rows_of
from pytest_tfperf.run_history.stores import Selection

STEP_TIMES = Selection(project="demo", metrics=("step_time",))
COUNT = "SELECT count(*) FROM runs WHERE metric = 'step_time'"
NO_HOME = "/proc/none"  # no folder can be made there


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return cache_in(tmp_path, monkeypatch)


@pytest.fixture
def address(tmp_path):
    return three_runs(tmp_path)


class TestSameAnswers:
    """Queries beside a search through the rows that were stored."""

    SELECTIONS = (
        Selection(),
        STEP_TIMES,
        Selection(project="other", scope="machine", usable=True),
        Selection(machine_class=machine_slug(SERVER["machine"])),
        Selection(project="demo", machine_class=machine_slug(LAPTOP["machine"]), branch="main"),
        Selection(project="demo", since=datetime(2026, 1, 3)),
        Selection(file="test_b.py"),
    )

    @staticmethod
    def selected(rows, selection):
        holds = {
            "=": lambda cell, value: cell == value,
            ">=": lambda cell, value: cell >= value,
            "IN": lambda cell, value: cell in value,
            "IS DISTINCT FROM": lambda cell, value: cell != value,
        }
        found = [
            row
            for row in rows
            if all(
                holds[operator](getattr(row, column), value)
                for column, operator, value in selection.conditions
            )
        ]
        return sorted(found, key=str)

    @staticmethod
    def one_run(chance, number):
        return run_at(
            number,
            step_time=chance.uniform(0.1, 0.2),
            day=chance.randint(1, 5),
            branch=chance.choice(["main", "topic"]),
            environment=chance.choice([LAPTOP, SERVER]),
            file=chance.choice(["test_model.py", "test_b.py"]),
            outcome=chance.choice(["passed", "failed"]),
        )

    def harm(self, chance, cache, folder, bad):
        """Damage an object or the index, or leave both."""
        kind = chance.choice(["object", "index", "gone", "nothing"])
        objects = sorted(Path(folder).rglob("*.parquet"))
        files = sorted(cache.glob("*.duckdb"))
        if kind == "object" and objects:
            good = chance.choice(objects)
            bad.append(good.with_name(f"bad-{len(bad)}.parquet"))
            content = good.read_bytes()
            bad[-1].write_bytes(content[: chance.randrange(len(content) - 8)])
        elif kind == "index" and files:
            content = bytearray(files[0].read_bytes())
            content[chance.randrange(len(content))] ^= 0xFF
            files[0].write_bytes(content)
        elif kind == "gone" and files:
            files[0].unlink()

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("seed", "n_runs"),
        [(0, 3), *(pytest.param(n, 20, marks=pytest.mark.nightly) for n in (1, 2, 3))],
    )
    def test_random_histories(self, tmp_path, cache, monkeypatch, seed, n_runs):
        chance, folder, stored, bad = random.Random(seed), str(tmp_path / "store"), {}, []
        usual = os.environ["XDG_CACHE_HOME"]
        for number in range(n_runs):
            project = chance.choice(["demo", "other"])
            rows = rows_of(self.one_run(chance, number), project)
            open_store(folder).append(rows)
            stored[rows.run] = [row for part in rows.rows.values() for row in part]
            if chance.random() < 0.2 and len(stored) > 1:
                removed = chance.choice(sorted(stored))
                for file in Path(folder).rglob(f"*-{removed}.parquet"):
                    file.unlink()
                del stored[removed]
            self.harm(chance, cache, folder, bad)
            every = [row for part in stored.values() for row in part]
            for selection in chance.sample(self.SELECTIONS, 2):
                wanted = self.selected(every, selection)
                for place in (usual, NO_HOME, usual):
                    monkeypatch.setenv("XDG_CACHE_HOME", place)
                    store = open_store(folder)
                    found = store.rows(selection)
                    assert sorted(found, key=str) == wanted
                    assert [row.created for row in found] == sorted(r.created for r in found)
                    named = {sentence.split(" is left out: ")[0] for sentence in store.unread}
                    assert named <= set(map(str, bad))
                    if selection == Selection():
                        assert named == set(map(str, bad))
            store = open_store(folder)
            assert store.sql("SELECT count(*) FROM runs", "").rows == ((len(every),),)
            assert len(store.unread) == len(bad)


class TestReadOnce:
    """Objects that are read into the index."""

    def test_each_object_is_read_once(self, address, monkeypatch):
        lists = added(monkeypatch)
        for _ in range(2):
            assert len(open_store(address).rows(STEP_TIMES)) == 3
            assert open_store(address).sql(COUNT, "demo").rows == ((3,),)
        assert list(map(len, lists)) == [3]
        store_of(run_at(3), store=open_store(address))
        assert len(open_store(address).rows(STEP_TIMES)) == 4
        assert list(map(len, lists)) == [3, 1]

    def test_remote_objects_are_fetched_once(self, monkeypatch):
        address = f"memory://{time.time_ns()}"
        store_of(run_at(0), run_at(1), store=open_store(address))
        fetched, memory = [], fsspec.filesystem("memory")
        cat = type(memory).cat
        monkeypatch.setattr(
            type(memory),
            "cat",
            lambda self, paths, **kw: fetched.append(paths) or cat(self, paths, **kw),
        )
        for _ in range(2):
            assert len(open_store(address).rows(STEP_TIMES)) == 2
        assert list(map(len, fetched)) == [2]

    def test_more_objects_than_in_one_query(self, address, monkeypatch):
        monkeypatch.setattr(index_tables, "_AT_A_TIME", 2)
        assert len(open_store(address).rows(STEP_TIMES)) == 3

    def test_more_objects_than_in_one_request(self, monkeypatch):
        monkeypatch.setattr(index_tables, "_IN_A_REQUEST", 2)
        address = f"memory://{time.time_ns()}"
        store_of(*map(run_at, range(5)), store=open_store(address))
        assert len(open_store(address).rows(STEP_TIMES)) == 5

    def test_a_damaged_object_is_tried_each_time(self, address, monkeypatch):
        bad = next(Path(address).rglob("*.parquet")).with_name("bad-run.parquet")
        bad.write_bytes(b"half")
        lists = added(monkeypatch)
        for _ in range(2):
            store = open_store(address)
            assert len(store.rows(STEP_TIMES)) == 3
            assert len(store.unread) == 1
        assert list(map(len, lists)) == [4, 1]
        assert lists[1] == [str(bad)]

    def test_pruned_objects_leave_the_index(self, address, cache):
        store = open_store(address)
        store.rows(STEP_TIMES)
        store.prune("demo", datetime(2026, 2, 1), dry=False)
        assert store.rows(STEP_TIMES) == []
        with duckdb.connect(str(index_of(cache)), read_only=True) as base:
            assert base.execute("SELECT count(*) FROM rows").fetchone() == (0,)
            assert base.execute("SELECT count(*) FROM objects").fetchone() == (0,)

    def test_a_query_of_one_project_keeps_the_objects_of_others(self, address, monkeypatch):
        store_of(run_at(5), store=open_store(address), project="other")
        open_store(address).rows(Selection())
        lists = added(monkeypatch)
        for project in ("demo", "other", ""):
            open_store(address).rows(Selection(project=project))
        assert lists == []

    def test_a_renamed_project_has_its_rows(self, address):
        open_store(address).rows(STEP_TIMES)
        rows = Path(address) / "rows-1"
        (rows / "project=demo").rename(rows / "project=new%20name")
        found = open_store(address).rows(replace(STEP_TIMES, project="new name"))
        assert [row.project for row in found] == ["new name"] * 3
        assert open_store(address).rows(STEP_TIMES) == []


class TestObjectsOfOthers:
    """Objects that another program wrote."""

    @staticmethod
    def beside(address, name, query):
        good = next(Path(address).rglob("abc123*.parquet"))  # no other one
        other = good.with_name(f"{name}.parquet")
        duckdb.sql(query.format(good=good)).write_parquet(str(other))
        return other

    def test_one_of_integers_does_not_round_the_values_of_others(self, address, cache):
        query = "SELECT * REPLACE (7::INTEGER AS value) FROM read_parquet('{good}')"
        for name in ("0-first", "z-last"):
            other = self.beside(address, name, query)
            values = sorted(row.value for row in open_store(address).rows(STEP_TIMES))
            assert values == [0.1, 0.1, 0.1, 7.0], name
            other.unlink()
            index_of(cache).unlink()  # the next one is read with the others again

    def test_one_of_other_types_is_left_out(self, address, cache):
        for column in (
            "{{'a': 1}} AS value",
            "[1.0] AS value",
            "'soon' AS usable",
            "'x' AS created",
        ):
            query = f"SELECT * REPLACE ({column}) FROM read_parquet('{{good}}')"
            bad = self.beside(address, "0-first", query)
            store = open_store(address)
            assert len(store.rows(STEP_TIMES)) == 3, column
            assert [sentence.split(" is left")[0] for sentence in store.unread] == [str(bad)]
            bad.unlink()
            index_of(cache).unlink()

    def test_its_own_columns_change_nothing(self, address):
        query = (
            "SELECT *, 1 AS file_index, 'x' AS filename, 1 AS object FROM read_parquet('{good}')"
        )
        self.beside(address, "0-first", query)
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 4
        assert not store.unread

    @pytest.mark.full
    def test_a_small_file_that_needs_much_memory_is_left_out(self, address, cache, monkeypatch):
        monkeypatch.setattr(duck, "MEMORY_MB", 100)
        query = (
            "SELECT * EXCLUDE range REPLACE (repeat('x', 300) AS why) "
            "FROM read_parquet('{good}'), range(20_000)"
        )
        bomb = self.beside(address, "0-first", query)
        assert bomb.stat().st_size < 500_000
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 3
        (sentence,) = store.unread
        assert sentence.startswith(f"{bomb} is left out: Out of Memory")
        assert index_of(cache).stat().st_size < 10_000_000

    @pytest.mark.full
    def test_files_too_large_together_are_all_read(self, address, monkeypatch):
        monkeypatch.setattr(duck, "MEMORY_MB", 100)
        for name in "abcdefgh":
            self.beside(
                address,
                name,
                "SELECT * EXCLUDE range REPLACE (repeat('x', 300) AS why) "
                "FROM read_parquet('{good}'), range(8_000) WHERE metric = 'step_time'",
            )
        reads, read = [], index_tables.OpenIndex._read
        monkeypatch.setattr(
            index_tables.OpenIndex,
            "_read",
            lambda self, asked: reads.append(len(asked["files"])) or read(self, asked),
        )
        store = open_store(address)
        assert store.sql(COUNT, "demo").rows == ((3 + 8 * 8_000,),)
        assert not store.unread
        assert max(reads) == 1 + 3 + 8  # with the file that gives the types
        assert len(reads) > 2
