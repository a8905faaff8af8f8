"""Each kind of store keeps what it is given, and gives it back."""

from datetime import datetime

import pytest
from helpers.builders import LAPTOP, SERVER, check, profile, record_of
from helpers.histories import KINDS, addresses, run_at, store_of

from pytest_tfperf.baseline.store import machine_slug
from pytest_tfperf.errors import StoreError
from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection, rows_of

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

LAPTOP_CLASS = machine_slug(LAPTOP["machine"])


@pytest.fixture(scope="module")
def address(processes, tmp_path_factory):
    with addresses(tmp_path_factory.mktemp("histories")) as found:
        yield found


@pytest.fixture(params=KINDS)
def store(request, address):
    return open_store(address(request.param))


def test_an_empty_one_has_nothing(store):
    assert store.rows(Selection()) == []
    assert store.sql("SELECT * FROM runs", "demo").rows == ()
    assert store.prune("demo", datetime(2027, 1, 1), dry=False) == 0


def test_one_that_no_run_has_made_is_missing(address):
    first = "the first run of pytest --tfperf-history makes it"
    for kind, why in (
        ("folder", f": there is no such folder; {first}"),
        ("postgresql", f": it has no tables; {first}"),
    ):
        store = open_store(address(kind))
        with pytest.raises(StoreError, match=f"^history .*{why}$"):
            store.refuse_missing()
        store_of(run_at(0), store=store)
        store.refuse_missing()
    for kind in ("memory", "s3"):
        open_store(address(kind)).refuse_missing()


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StoreError, match=r"run\.json: it is no folder$"):
        open_store(str(tmp_path / "run.json")).refuse_missing()


def test_rows_come_back_as_they_were(store):
    tests = [
        record_of(
            profile("a", step_time=0.1, input_bound=0.05),
            checks=[check("FAIL", "input_bound", name="a")],
        ),
        record_of(profile(step_time=0.3), key="test_other", environment=SERVER),
    ]
    stored = rows_of(run_at(0, tests=tests), "demo")
    assert store.append(stored)
    every = [row for rows in stored.rows.values() for row in rows]
    assert len(every) > 60
    found = store.rows(Selection())
    assert sorted(found, key=str) == sorted(every, key=str)
    (bound,) = [row for row in found if (row.test, row.metric) == ("test_step", "input_bound")]
    assert (bound.value, bound.verdict, bound.unit, bound.profile) == (0.05, "FAIL", "0..1", "a")
    (unknown,) = [row for row in found if (row.test, row.metric) == ("test_other", "retraces")]
    assert (unknown.value, unknown.why) == (None, "not measured")


def test_a_run_is_stored_once(store):
    rows = rows_of(run_at(0), "demo")
    assert [store.append(rows), store.append(rows)] == [True, False]
    assert len(store.rows(Selection(metrics=("step_time",)))) == 1


SELECTIONS = [
    (Selection(project="demo"), [0, 1, 2, 3]),
    (Selection(project="other"), [4]),
    (Selection(project="demo", branch="main"), [0, 1, 3]),
    (Selection(project="demo", usable=True), [1, 2, 3]),
    (Selection(project="demo", since=datetime(2026, 1, 1, 0, 2)), [2, 3]),
    (Selection(project="demo", machine_class=LAPTOP_CLASS), [0, 1, 2]),
    (Selection(project="demo", file="test_b.py"), [3]),
    (Selection(project="none"), []),
]


@pytest.mark.parametrize("kind", ["folder", "postgresql"])
def test_a_selection(address, kind):
    store = store_of(
        run_at(3, file="test_b.py", environment=SERVER),  # not in the order of time
        run_at(0, outcome="failed"),
        run_at(1),
        run_at(2, branch="topic"),
        store=open_store(address(kind)),
    )
    store_of(run_at(4), store=store, project="other")
    for selection, minutes in SELECTIONS:
        found = [row for row in store.rows(selection) if row.metric == "step_time"]
        assert [row.created.minute for row in found] == minutes, selection


def test_usable_rows_have_a_value(store):
    store_of(run_at(0), run_at(1, outcome="failed"), store=store)
    assert {row.metric for row in store.rows(Selection(usable=True))} == {"step_time", "retraces"}
    assert None in {row.value for row in store.rows(Selection())}


class TestSql:
    @pytest.fixture(params=["folder", "postgresql"])
    def filled(self, request, address):
        store = open_store(address(request.param))
        store_of(run_at(0, step_time=0.1), run_at(1, step_time=0.2), store=store)
        return store_of(run_at(2, step_time=9.0), store=store, project="other")

    def test_a_query(self, filled):
        answer = filled.sql(
            "WITH t AS (SELECT value FROM runs WHERE metric = 'step_time') "
            "SELECT max(value) AS longest, count(*) AS n FROM t;",
            "demo",
        )
        assert (answer.columns, answer.rows) == (("longest", "n"), ((0.2, 2),))
        of_all_projects = "SELECT count(*) FROM runs WHERE metric = 'step_time'"
        assert filled.sql(of_all_projects, "").rows == ((3,),)

    def test_what_is_no_select_is_refused_and_changes_nothing(self, filled):
        for query in (
            "DELETE FROM runs",
            "DROP TABLE runs",
            "SELECT 1; SELECT 2",
            "SELECT 1) AS answer; COMMIT; DROP TABLE tfperf_runs; SELECT * FROM (SELECT 1",
            "COPY (SELECT 1) TO '/tmp/tfperf-written.csv'",
            "SELECT * FROM none_such",
            "SELECT FROM WHERE",
            "",
        ):
            with pytest.raises(StoreError) as caught:
                filled.sql(query, "demo")
            assert "\n" not in str(caught.value), query
            assert len(filled.rows(Selection(metrics=("step_time",)))) == 3, query

    def test_files_of_the_machine_cannot_be_read(self, address):
        store = store_of(run_at(0), store=open_store(address("folder")))
        with pytest.raises(StoreError, match="SQL: "):
            store.sql("SELECT * FROM read_text('/etc/passwd')", "demo")


def test_pruning_removes_the_old_runs_of_a_project(store):
    for day, project in ((1, "demo"), (1, "other")):
        store_of(run_at(0, day=day), store=store, project=project)
    assert store.prune("demo", datetime(2026, 2, 1), dry=True) == 1
    assert len(store.rows(Selection(metrics=("step_time",)))) == 2
    assert store.prune("demo", datetime(2026, 2, 1), dry=False) == 1
    (left,) = store.rows(Selection(metrics=("step_time",)))
    assert left.project == "other"


def test_pruning_ends_at_the_exact_time(store):
    store_of(*(run_at(minute, day=day) for day in (1, 2) for minute in (0, 1, 2)), store=store)

    def left():
        return [f"{row.created:%d %M}" for row in store.rows(Selection(metrics=("step_time",)))]

    for before, n, after in (
        (datetime(2026, 1, 1), 0, ["01 00", "01 01", "01 02", "02 00", "02 01", "02 02"]),
        (datetime(2026, 1, 1, 0, 1), 1, ["01 01", "01 02", "02 00", "02 01", "02 02"]),
        (datetime(2026, 1, 2, 0, 0, 0, 1), 3, ["02 01", "02 02"]),
    ):
        assert store.prune("demo", before, dry=True) == n, before
        assert store.prune("demo", before, dry=False) == n, before
        assert left() == after, before


def test_names_of_projects(store):
    store_of(run_at(1), store=store, project="x")
    for name in ("a/b", "..", "a=b*[c]?", "100 %", "50%% of %s", "ü", "it's"):
        store_of(run_at(0), store=store, project=name)
        (row,) = store.rows(Selection(project=name, metrics=("step_time",)))
        assert row.project == name
        query = "SELECT DISTINCT project FROM runs WHERE metric LIKE 'step%'"
        assert store.sql(query, name).rows == ((name,),)
