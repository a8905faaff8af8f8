"""The command tfperf history: what it shows, writes and removes, and what it says when there is nothing."""

import csv
import io
import json
import random

import pytest
from helpers.builders import profile, record_of
from helpers.histories import run_at, store_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.run_history.opening import open_store

N_RUNS, CHANGE = 40, 24


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A history in which test_train gets slower by 10 % with one commit, and test_eval stays."""
    chance = random.Random(0)
    runs = []
    for n in range(N_RUNS):
        slower = 1.1 if n >= CHANGE else 1.0
        tests = [
            record_of(
                profile(step_time=0.1 * slower * chance.gauss(1, 0.01), peak_memory=2.0**20),
                key="test_train",
            ),
            record_of(profile(step_time=0.02 * chance.gauss(1, 0.01)), key="test_eval"),
        ]
        runs.append(run_at(n, commit=f"{n:012x}", day=1 + n // 2, tests=tests))
    runs.append(run_at(50, step_time=9.0, branch="topic", key="test_train"))
    runs.append(run_at(51, step_time=9.0, commit="abcdef012345+", key="test_train"))
    folder = str(tmp_path_factory.mktemp("history") / "store")
    store_of(*runs, store=open_store(folder))
    return folder


@pytest.fixture
def history(address, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words, store=address):
        status = main(["history", *words, "--store", store, "--project", "demo"])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_line_for_each_test_says_since_when_it_is_slower(history):
    status, out, _ = history()
    assert status == 0
    train, evaluate = (
        next(line for line in out.splitlines() if name in line) for name in ("train", "eval")
    )
    assert "since commit 000000000018: 10 % slower" in train  # 24 is 18 in hexadecimal
    assert " 40 " in train
    assert "since" not in evaluate


def test_the_runs_of_a_test(history):
    status, out, _ = history("test_train")
    assert status == 0
    assert "Since commit 000000000018: " in out
    assert out.count("0000000000") == 20 + 1
    assert "and 20 before them (-v shows all)" in out
    assert history("test_train", "-v")[1].count("2026-01-") == N_RUNS
    assert history("test_model.py::test_train")[0] == 0


def test_since_a_date(history):
    assert history("test_train", "-v", "--since", "2026-01-20")[1].count("2026-01-20") == 2


def test_another_metric_and_branch(history):
    assert "1 MiB" in history("--metric", "peak_memory")[1]
    assert "9 s" in history("--branch", "topic")[1]


def test_json_has_all_values(history):
    found = json.loads(history("test_train", "--json")[1])
    (series,) = found["series"]
    assert len(series["values"]) == len(series["commits"]) == len(series["created"]) == N_RUNS
    assert series["changes"][0].startswith("Since commit 000000000018")


def test_csv_for_otava_has_a_line_a_run(history):
    rows = list(csv.DictReader(io.StringIO(history("--csv", "otava")[1])))
    assert len(rows) == N_RUNS
    assert list(rows[0]) == ["time", "commit", "test_eval", "test_train"]
    assert [int(row["time"]) for row in rows] == sorted(int(row["time"]) for row in rows)
    assert float(rows[0]["test_train"]) == pytest.approx(0.1, rel=0.1)


def test_a_run_without_one_of_the_tests_is_left_out_of_the_csv(history, tmp_path):
    store = str(tmp_path / "other")
    store_of(run_at(0, key="test_a"), run_at(1, key="test_b"), store=open_store(store))
    _, out, err = history("--csv", "otava", store=store)
    assert out.splitlines() == ["time,commit,test_a,test_b"]
    assert "2 runs left out" in err
    assert len(history("test_a", "--csv", "otava", store=store)[1].splitlines()) == 2


def test_a_query(history):
    query = "SELECT count(*) AS n FROM runs WHERE metric = 'step_time'"
    assert history("--sql", query)[1].split() == ["n", "--", "82"]
    assert json.loads(history("--sql", query, "--json")[1]) == {"columns": ["n"], "rows": [[82]]}
    assert history("--sql", "DROP TABLE runs")[0] == 2


def test_a_page(history, tmp_path):
    assert history("-o", "trend.html")[0] == 0
    page = (tmp_path / "trend.html").read_text("utf-8")
    assert "test_train: Since commit 000000000018: 10 % slower" in page
    assert page.count('class="chart history"') == 2
    assert history("-o", "trend.txt")[0] == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("test_trian",), 1, "no run of test_trian; did you mean test_train?; stored: test_eval, "),
        (("--metric", "step_tim"), 1, "no run with step_tim is stored for project demo, branch "),
        (("--since", "2027-01-01"), 1, "project demo, branch main since 2027-01-01"),
        (("--since", "soon"), 2, "'soon' is no date, such as 2026-11-24"),
        (("--branch", "none"), 1, "project demo, branch none; stored: main of demo"),
    ],
)
def test_what_is_not_there(history, words, status, said):
    found, _, err = history(*words)
    assert (found, said in err) == (status, True), err


def test_pruning(history, tmp_path, address):
    store = str(tmp_path / "other")
    store_of(run_at(0), run_at(1), store=open_store(store))
    assert (
        "2 runs of demo would be removed"
        in history("prune", "--before", "2026-03-01", "--dry-run", store=store)[1]
    )
    assert "2 runs of demo removed" in history("prune", "--before", "2026-03-01", store=store)[1]
    assert history(store=store)[0] == 1
    with pytest.raises(SystemExit):
        history("prune", store=store)


def test_the_settings_of_the_project_name_the_store(history, tmp_path, capsys):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntfperf_history = kept\ntfperf_history_project = mine\n"
        "tfperf_history_branch = trunk\n"
    )
    store_of(run_at(0, branch="trunk"), store=open_store(str(tmp_path / "kept")), project="mine")
    assert main(["history"]) == 0
    assert "test_step" in capsys.readouterr().out


def test_without_a_store_the_command_says_how_to_name_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["history"])
    assert "give --store URL, or set the ini value tfperf_history" in capsys.readouterr().err
