"""Objects of a history that are damaged, hostile, half written, or of a version to come."""

from dataclasses import replace
from datetime import datetime

import duckdb
import pytest
from helpers.builders import profile, record_of
from helpers.histories import run_at, store_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import StoreError
from pytest_tfperf.report.run_file import write_run
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection, rows_of

STEP_TIMES = Selection(project="demo", metrics=("step_time",))


@pytest.fixture
def store(tmp_path):
    return store_of(run_at(0), run_at(1), store=open_store(str(tmp_path / "store")))


def objects(tmp_path, ending=".parquet"):
    return sorted((tmp_path / "store").rglob(f"*{ending}"))


# bytes, how many bytes are missing, or a query of DuckDB
DAMAGED = [
    b"",
    b"PAR1",
    b"no Parquet at all",
    20,
    "SELECT 1 AS other",
    "SELECT 'x' AS created, * EXCLUDE created FROM read_parquet('{good}')",
    "SELECT * EXCLUDE value, 'much' AS value FROM read_parquet('{good}')",
]


def test_a_damaged_object_is_left_out_by_name(store, tmp_path):
    good = objects(tmp_path)[0]
    bad = good.with_name("bad-run.parquet")
    for content in DAMAGED:
        if isinstance(content, int):
            bad.write_bytes(good.read_bytes()[:-content])
        elif isinstance(content, bytes):
            bad.write_bytes(content)
        else:
            duckdb.sql(content.format(good=good)).write_parquet(str(bad))
        assert len(store.rows(STEP_TIMES)) == 2, content
        (sentence,) = store.unread
        assert sentence.startswith(f"{bad} is left out: "), content
        assert "\n" not in sentence, content
        query = "SELECT count(*) FROM runs WHERE metric = 'step_time' AND value < year(created)"
        assert store.sql(query, "demo").rows == ((2,),), content


def test_texts_of_others_do_not_control_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = record_of(profile("\x1b[31mred\n::error::x", step_time=0.1), key="test_\u202eevil")
    folder = str(tmp_path / "store")
    store_of(run_at(0, tests=[test]), store=open_store(folder))
    for words in ([], ["--sql", "SELECT * FROM runs"], ["-o", "x.html"]):
        assert main(["history", "--store", folder, "--project", "demo", *words]) == 0
    shown, page = capsys.readouterr().out, (tmp_path / "x.html").read_text("utf-8")
    assert not {"\x1b", "\u202e"} & set(shown + page)
    assert not [line for line in shown.splitlines() if line.startswith("::")]


def test_objects_of_others_do_not_control_the_terminal(store, tmp_path, capsys):
    good, folder = objects(tmp_path)[0], str(tmp_path / "store")
    query = (
        "SELECT * REPLACE (chr(27) || '[31mred' AS verdict, chr(27) || '[2J' AS why, "
        f"false AS usable) FROM read_parquet('{good}')"
    )
    duckdb.sql(query).write_parquet(str(good.with_name("0-forged.parquet")))
    for words in (["test_step"], ["--sql", "SELECT verdict, chr(27) AS other FROM runs"]):
        assert main(["history", "--store", folder, "--project", "demo", *words]) == 0
        shown = capsys.readouterr().out
        assert "[31mred" in shown
        assert "\x1b" not in shown


def test_an_object_that_claims_too_many_rows_ends_with_an_error(store, tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_tfperf.stores.object_history.MOST_ROWS", 1000)
    good = objects(tmp_path)[0]
    query = f"SELECT * FROM read_parquet('{good}'), range(1000)"
    duckdb.sql(query).project("* EXCLUDE range").write_parquet(
        str(good.with_name("many-x.parquet"))
    )
    with pytest.raises(StoreError, match="more than 1,000 rows; ask for fewer with --since"):
        store.rows(Selection(project="demo"))


def test_rows_of_a_version_to_come_are_refused(store, tmp_path):
    (tmp_path / "store" / "rows-2").mkdir()
    for call in (lambda: store.rows(STEP_TIMES), lambda: store.sql("SELECT 1", "demo")):
        with pytest.raises(StoreError, match=r"rows of format 2, .* upgrade pytest-tfperf"):
            call()


def test_a_folder_whose_name_has_patterns(tmp_path):
    store = store_of(run_at(0), store=open_store(str(tmp_path / "a[b]*?'c")))
    assert len(store.rows(STEP_TIMES)) == 1


def test_a_store_that_cannot_be_written_keeps_what_it_has(store, tmp_path, monkeypatch):
    from pytest_tfperf.stores import objects as module

    def fails(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(module, "replacing", fails)
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        store.append(rows_of(run_at(5), "demo"))
    monkeypatch.undo()
    assert len(store.rows(STEP_TIMES)) == 2
    assert store.append(rows_of(run_at(5), "demo"))


def test_a_run_of_which_only_the_file_was_stored_is_completed(store, tmp_path):
    (lost,) = (tmp_path / "store").rglob(f"*-{rows_of(run_at(1), 'demo').run}.parquet")
    lost.unlink()
    assert len(store.rows(STEP_TIMES)) == 1
    assert store.append(rows_of(run_at(1), "demo"))
    assert len(store.rows(STEP_TIMES)) == 2


def test_pruning_leaves_what_another_run_is_writing(store, tmp_path):
    folder = objects(tmp_path)[0].parent / ".tfperf-0"
    folder.mkdir()
    (folder / "new").write_bytes(b"half")
    assert store.prune("demo", datetime(2027, 1, 1), dry=False) == 2
    assert (folder / "new").exists()


def test_months_before_a_date_are_not_even_opened(store, tmp_path):
    old = objects(tmp_path)[0].parent
    later = old.with_name("month=2026-03")
    old.rename(later)
    old.mkdir()
    (old / "bad-run.parquet").write_bytes(b"damaged")
    assert store.rows(replace(STEP_TIMES, since=datetime(2026, 2, 1))) == []
    assert not store.unread
    store.rows(STEP_TIMES)
    assert len(store.unread) == 1


def test_accepted_runs_are_added_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntfperf_history_project = demo\n")
    (tmp_path / "test_model.py").write_text("")
    write_run(run_at(3), tmp_path / "run.json")
    words = ["accept", "run.json", "--tfperf-history", str(tmp_path / "store")]
    said = ("1 run added, 0 there already", "0 runs added, 1 there already")
    for sentence in said:
        assert main(words) == 0
        assert sentence in capsys.readouterr().out
    assert len(open_store(str(tmp_path / "store")).rows(STEP_TIMES)) == 1


def test_pruning_takes_objects_of_others_by_their_month(store, tmp_path):
    other = objects(tmp_path)[0].with_name("others.parquet")
    other.write_bytes(b"half")
    assert store.prune("demo", datetime(2026, 1, 31), dry=False) == 2
    assert other.exists()
    assert store.prune("demo", datetime(2026, 2, 1), dry=False) == 1
    assert objects(tmp_path) == []


def test_a_folder_that_cannot_be_listed_is_no_empty_one(store, monkeypatch):
    from fsspec.implementations.local import LocalFileSystem

    listed = LocalFileSystem.ls

    def ls(self, path, **options):
        if "class=" in path:
            raise PermissionError(13, "Permission denied", path)
        return listed(self, path, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(StoreError, match=r"^history .*store cannot be read: Permission denied$"):
        store.rows(STEP_TIMES)
