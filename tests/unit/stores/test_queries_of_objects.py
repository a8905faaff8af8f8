"""Queries of a history in objects: the same rows as those that were stored, whatever lies beside them."""

import os
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import duckdb
import fsspec
import pytest
from helpers.builders import LAPTOP, SERVER
from helpers.histories import run_at, store_of

from pytest_tfperf.baseline.store import machine_slug
from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores import objects, tables
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import ROW_COLUMNS, Selection, rows_of

STEP_TIMES = Selection(project="demo", metrics=("step_time",))
COUNT = "SELECT count(*) FROM runs WHERE metric = 'step_time'"
COUNT_TEXTS = "SELECT count(why) FROM runs WHERE metric = 'step_time' AND why != 'none'"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pytest-tfperf" / "objects"


@pytest.fixture
def address(tmp_path):
    store_of(run_at(0), run_at(1), run_at(2), store=open_store(str(tmp_path / "store")))
    return str(tmp_path / "store")


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

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("kind", "n_runs"),
        [
            ("folder", 4),
            *(pytest.param(one, 20, marks=pytest.mark.nightly) for one in ("folder", "memory")),
        ],
    )
    def test_random_histories(self, tmp_path, kind, n_runs):
        chance, stored, n_bad = random.Random(n_runs), {}, 0
        folder = str(tmp_path / "store") if kind == "folder" else f"memory://{tmp_path.name}"
        files, root = fsspec.core.url_to_fs(folder)
        for number in range(n_runs):
            project = chance.choice(["demo", "other"])
            rows = rows_of(self.one_run(chance, number), project)
            open_store(folder).append(rows)
            stored[rows.run] = [row for part in rows.rows.values() for row in part]
            objects = [path for path in files.find(root) if path.endswith(".parquet")]
            if chance.random() < 0.2:
                removed = chance.choice(sorted(stored))
                for path in objects:
                    if f"-{removed}." in path:
                        files.rm_file(path)
                del stored[removed]
            elif chance.random() < 0.3:
                content = files.cat_file(chance.choice(objects))
                bad = f"{objects[0].rpartition('/')[0]}/bad-{n_bad}.parquet"
                files.pipe_file(bad, content[: chance.randrange(len(content) - 8)])
                n_bad += 1
            every = [row for part in stored.values() for row in part]
            for selection in chance.sample(self.SELECTIONS, 2):
                store = open_store(folder)
                found = store.rows(selection)
                assert sorted(found, key=str) == self.selected(every, selection)
                assert [row.created for row in found] == sorted(row.created for row in found)
                assert all("/bad-" in sentence for sentence in store.unread)
            store = open_store(folder)
            assert store.sql("SELECT count(*) FROM runs", "").rows == ((len(every),),)
            assert len(store.unread) == n_bad


class TestReading:
    """Objects that a query reads."""

    def test_a_query_leaves_nothing(self, address, tmp_path, monkeypatch):
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        monkeypatch.chdir(tmp_path / "temporary")
        assert len(open_store(address).rows(STEP_TIMES)) == 3
        assert open_store(address).sql(COUNT, "demo").rows == ((3,),)
        assert list((tmp_path / "temporary").iterdir()) == []
        assert not (tmp_path / "cache").exists()

    def test_a_disk_without_room_is_said(self, address, monkeypatch):
        def fails(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tables, "TemporaryFolder", fails)
        with pytest.raises(StoreError, match=r"cannot be read: No space left on device$"):
            open_store(address).rows(STEP_TIMES)

    def test_remote_objects_are_fetched_once(self, tmp_path, monkeypatch, cache):
        address = f"memory://{tmp_path.name}"
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
        bad = f"{fetched[0][0].rpartition('/')[0]}/bad.parquet"
        memory.pipe_file(bad, b"half")
        for _ in range(2):
            store = open_store(address)
            assert len(store.rows(STEP_TIMES)) == 2
            assert [sentence.split(" is left")[0] for sentence in store.unread] == [bad]
        assert fetched[1:] == [[bad], [bad]]
        assert not list(cache.rglob("bad*"))

    def test_more_objects_than_in_one_query(self, address, monkeypatch):
        monkeypatch.setattr(tables, "_AT_A_TIME", 2)
        assert len(open_store(address).rows(STEP_TIMES)) == 3

    def test_a_renamed_project_has_its_rows(self, address):
        rows = Path(address) / "rows-1"
        (rows / "project=demo").rename(rows / "project=new%20name")
        found = open_store(address).rows(replace(STEP_TIMES, project="new name"))
        assert [row.project for row in found] == ["new name"] * 3
        assert open_store(address).rows(STEP_TIMES) == []

    def test_the_name_of_an_object_tells_what_its_rows_need_not(self, address):
        before = open_store(address).rows(Selection(project="demo"))
        of_name = "project, machine_class, run, created, commit"
        first, *others = sorted(Path(address).rglob("*.parquet"))
        for path in others:
            rows = duckdb.read_parquet(str(path)).project(f"* EXCLUDE ({of_name})")
            rows.write_parquet(str(path))
        first.rename(first.with_name("first.parquet"))  # the rows of this one tell
        store = open_store(address)
        assert sorted(store.rows(Selection(project="demo")), key=str) == sorted(before, key=str)
        query = "SELECT count(DISTINCT run || created || commit || machine_class) FROM runs"
        assert store.sql(query, "").rows == ((3,),)
        assert not store.unread
        hostile = others[0].with_name(others[0].name.replace("2026-01", "2026-99"))
        others[0].rename(hostile)
        assert len(store.rows(STEP_TIMES)) == 2
        assert [sentence.split(" is left")[0] for sentence in store.unread] == [str(hostile)]

    def test_sql_has_the_columns_that_it_needs_where_it_does_not_name_them(self, address):
        rows = open_store(address).rows(Selection(project="demo"))
        n, step_times = len(rows), [row for row in rows if row.metric == "step_time"]
        for query, expected in (
            ("SELECT count(*) FROM runs", n),
            ("SELECT count(*) FROM (SELECT DISTINCT * FROM runs)", n),
            ("FROM (SELECT count(setting) FROM (SELECT setting, test FROM runs))", n),
            ("SELECT count(*) FROM runs a NATURAL JOIN (SELECT DISTINCT metric, run FROM runs)", n),
            ("SELECT max(len(runs.setting)) FROM runs", max(len(row.setting) for row in rows)),
            ("SELECT count(DISTINCT runs) FROM runs", n),
            ("SELECT count(DISTINCT run) FROM runs WHERE metric IN ('step_time')", 3),
            ("SELECT run FROM runs ORDER BY created DESC, metric LIMIT 1", rows[-1].run),
            (
                "WITH a AS (SELECT * FROM runs) SELECT min(commit || branch) FROM a",
                "abc123def456main",
            ),
            ("SELECT any_value(columns('work.*')) FROM runs", rows[0].workload),
            ("SELECT count(*) FROM runs WHERE (SELECT true) AND metric = 'step_time'", 3),
            ("SELECT sum(value) FROM runs WHERE metric = 'step_time'", pytest.approx(0.3)),
        ):
            assert open_store(address).sql(query, "demo").rows == ((expected,),), query
        (row, *_) = (
            open_store(address)
            .sql("SELECT * FROM runs WHERE metric = 'step_time' ORDER BY created", "demo")
            .rows
        )
        assert row == tuple(getattr(step_times[0], name) for name in ROW_COLUMNS)

    def test_sql_does_not_read_what_it_does_not_need(self, address):
        for path in Path(address).rglob("*.parquet"):
            rows = duckdb.read_parquet(str(path)).project("* EXCLUDE (project, ratio, created)")
            rows.write_parquet(str(path))
        for query, answer, n_unread in ((COUNT, 3, 0), ("SELECT count(ratio) FROM runs", 0, 3)):
            store = open_store(address)
            assert store.sql(query, "demo").rows == ((answer,),), query
            assert len(store.unread) == n_unread, query

    def test_sql_that_is_wrong_is_refused_before_a_run_is_read(self, tmp_path):
        with pytest.raises(StoreError, match=r'SQL: Binder Error: .*"valu" not found'):
            open_store(str(tmp_path / "none")).sql("SELECT valu FROM runs", "demo")

    def test_sql_reads_no_file(self, address, tmp_path):
        (tmp_path / "other.csv").write_text("secret\n")
        for query in (
            "SELECT * FROM read_blob('{folder}/other.csv')",
            "SELECT * FROM read_parquet('{folder}/store/**/*.parquet')",
            "SELECT * FROM glob('{folder}/*')",
            "SELECT * FROM '{folder}/other.csv'",
        ):
            with pytest.raises(StoreError, match="SQL: Permission Error"):
                open_store(address).sql(query.format(folder=tmp_path), "demo")


class TestPrunedMeanwhile:
    """Objects that another process removes between listing and reading."""

    @pytest.fixture(params=["folder", "memory"])
    def address(self, request, tmp_path):
        places = {"folder": str(tmp_path / "store"), "memory": f"memory://{tmp_path.name}"}
        store_of(*map(run_at, range(4)), store=open_store(places[request.param]))
        return places[request.param]

    @pytest.fixture
    def removes(self, address, monkeypatch):
        """A list for the numbers of the objects that are removed when they are listed next."""
        files, _ = fsspec.core.url_to_fs(address)
        find, numbers = objects.find, []

        def find_and_remove(*arguments):
            found = find(*arguments)
            tables = sorted(path for path in found if path.endswith(".parquet"))
            while numbers:
                files.rm_file(tables[numbers.pop()])
            return found

        monkeypatch.setattr(objects, "find", find_and_remove)
        return numbers

    @pytest.mark.parametrize("gone", [[1], [2, 0], [3, 2, 1, 0]])
    def test_a_removed_run_is_not_in_the_answer(self, address, removes, gone):
        removes += sorted(gone)  # the last one first
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 4 - len(gone)
        assert not store.unread

    def test_a_removed_run_is_not_in_the_answer_of_sql(self, address, removes):
        removes.append(0)
        store = open_store(address)
        assert store.sql(COUNT, "demo").rows == ((3,),)
        assert not store.unread

    def test_a_damaged_one_beside_it_is_said(self, address, removes):
        files, root = fsspec.core.url_to_fs(address)
        bad = min(path for path in files.find(root) if path.endswith(".parquet"))
        files.pipe_file(bad, b"half")
        removes.append(3)
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 2
        assert [sentence.split(" is left")[0] for sentence in store.unread] == [bad]

    def test_a_run_that_is_pruned_twice_at_once_is_no_error(self, address, removes):
        removes.append(0)
        assert open_store(address).prune("demo", datetime(2027, 1, 1), dry=False) == 4
        assert open_store(address).rows(STEP_TIMES) == []

    def test_a_remote_one_that_is_forbidden_is_an_error(self, tmp_path, monkeypatch):
        store = store_of(run_at(0), run_at(1), store=open_store(f"memory://{tmp_path.name}"))
        memory = type(fsspec.filesystem("memory"))
        cat_file = memory.cat_file

        def forbids(self, path, **options):
            if "T000100" in path:
                raise PermissionError("Access Denied")
            return cat_file(self, path, **options)

        monkeypatch.setattr(memory, "cat_file", forbids)
        with pytest.raises(StoreError, match=r"cannot be read: Access Denied$"):
            store.rows(STEP_TIMES)

    @pytest.mark.skipif(getattr(os, "getuid", int)() == 0, reason="root reads every file")
    def test_a_local_one_that_is_forbidden_is_said(self, tmp_path):
        store = store_of(run_at(0), run_at(1), store=open_store(str(tmp_path / "store")))
        (first, _) = sorted(tmp_path.rglob("*.parquet"))
        first.chmod(0)
        assert len(store.rows(STEP_TIMES)) == 1
        assert [sentence.split(" is left")[0] for sentence in store.unread] == [str(first)]


class TestObjectsOfOthers:
    """Objects that another program wrote."""

    @staticmethod
    def beside(address, name, query):
        good = next(Path(address).rglob("*-abc123*.parquet"))  # no other one
        other = good.with_name(f"{name}.parquet")
        duckdb.sql(query.format(good=good)).write_parquet(str(other))
        return other

    def test_one_of_integers_does_not_round_the_values_of_others(self, address):
        query = "SELECT * REPLACE (7::INTEGER AS value) FROM read_parquet('{good}')"
        for name in ("0-first", "z-last"):
            other = self.beside(address, name, query)
            values = sorted(row.value for row in open_store(address).rows(STEP_TIMES))
            assert values == [0.1, 0.1, 0.1, 7.0], name
            other.unlink()

    def test_one_of_other_types_is_left_out(self, address):
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

    def test_its_own_columns_change_nothing(self, address):
        query = (
            "SELECT *, 1 AS file_index, 'x' AS filename, 1 AS object FROM read_parquet('{good}')"
        )
        self.beside(address, "0-first", query)
        store = open_store(address)
        assert len(store.rows(STEP_TIMES)) == 4
        assert not store.unread

    @pytest.mark.full
    def test_a_small_file_that_needs_much_memory_is_left_out(self, address, monkeypatch):
        monkeypatch.setattr(tables, "MEMORY_MB", 100)
        query = (
            "SELECT * EXCLUDE range REPLACE (repeat('x', 300) AS why) "
            "FROM read_parquet('{good}'), range(20_000)"
        )
        bomb = self.beside(address, "0-first", query)
        assert bomb.stat().st_size < 500_000
        store = open_store(address)
        assert store.sql(COUNT_TEXTS, "demo").rows == ((3,),)
        (sentence,) = store.unread
        assert sentence.startswith(f"{bomb} is left out: Out of Memory")

    @pytest.mark.full
    def test_files_too_large_together_are_all_read(self, address, monkeypatch):
        monkeypatch.setattr(tables, "MEMORY_MB", 100)
        for name in "abcdefgh":
            self.beside(
                address,
                name,
                "SELECT * EXCLUDE range REPLACE (repeat('x', 300) AS why) "
                "FROM read_parquet('{good}'), range(8_000) WHERE metric = 'step_time'",
            )
        store = open_store(address)
        assert store.sql(COUNT_TEXTS, "demo").rows == ((3 + 8 * 8_000,),)
        assert not store.unread
