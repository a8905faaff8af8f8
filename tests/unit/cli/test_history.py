"""The command tfperf history: what it shows, writes and removes, and what it says when there is nothing."""

import json
import random
import re

import pytest
from helpers.builders import check, profile, record_of, value
from helpers.histories import run_at, store_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.results import INTERFERENCE
from pytest_tfperf.stores.history import open_store

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

    def run(*words, store=address, project="demo"):
        status = main(["history", *words, "--store", store, "--project", project])
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


def noisy(minute):
    """A run that other processes disturbed."""
    step_time = value("step_time", 0.1, settled=True, **{INTERFERENCE: ["other processes ran: x"]})
    return run_at(minute, tests=[record_of(profile(step_time=step_time))])


def slower(minute):
    """A run whose test failed as a regression."""
    found = record_of(
        profile(step_time=0.12), outcome="failed", checks=[check("REGRESSION", "step_time")]
    )
    return run_at(minute, tests=[found])


def test_the_runs_that_do_not_count_have_a_reason(history, tmp_path):
    store = str(tmp_path / "other")
    store_of(run_at(0), noisy(1), slower(2), store=open_store(store))
    _, out, _ = history("test_step", store=store)
    rows = [line for line in out.splitlines() if line.startswith("2026-01-01")]
    assert [row.split("ms")[1].split() for row in rows] == [
        ["yes"],
        ["no:", "other", "processes", "ran"],
        ["REGRESSION", "no:", "the", "test", "failed"],
    ]
    assert "2 of 3 runs do not count: no later run is compared with them.\n" in out
    (series,) = json.loads(history("test_step", "--json", store=store)[1])["series"]
    assert series["counts"] == [True, False, False]
    assert series["verdicts"] == ["", "", "REGRESSION"]
    assert series["why_not"][1].endswith("run on a quiet machine")
    assert series["why_not"][2] == "the test failed"


def test_runs_of_another_branch_do_not_count(history, tmp_path):
    out = history("test_train", "--branch", "topic")[1]
    assert "no: not on branch main" in out
    assert "1 of 1 run does not count: no later run is compared with it." in out
    (tmp_path / "pytest.ini").write_text("[pytest]\ntfperf_history_branch = topic\n")
    assert "yes" in history("test_train")[1]
    assert "no: " not in history("test_train")[1]


def test_regressions_do_not_contradict_that_no_level_changed(history, tmp_path):
    store = str(tmp_path / "other")
    store_of(*map(run_at, range(12)), slower(12), store=open_store(store))
    words = " ".join(history("test_step", store=store)[1].split())
    assert (
        "No change of level in 13 runs: a change has at least 3 runs after it, and a small one "
        "more. 1 run has the verdict REGRESSION against its reference. 1 of 13 runs does not "
        "count: no later run is compared with it. Changes of level are those of all runs." in words
    )
    store_of(*map(slower, range(13, 18)), store=open_store(store))
    words = " ".join(history("test_step", store=store)[1].split())
    assert "Since commit abc123def456: 20 % slower" in words
    assert "6 runs have the verdict REGRESSION against their reference." in words


def test_an_empty_value_is_refused(history, capsys):
    flags = "--branch --metric --since --sql --before -o --project"
    for flag in flags.split():
        with pytest.raises(SystemExit) as caught:
            history(flag, "")
        assert caught.value.code == 2, flag
        assert flag in capsys.readouterr().err
    for words, store in (((), ""), (("",), "some")):
        with pytest.raises(SystemExit) as caught:
            history(*words, store=store)
        assert caught.value.code == 2
        assert "the value is empty" in capsys.readouterr().err


def test_a_missing_store(history, tmp_path):
    missing = str(tmp_path / "mistyped")
    for words in ((), ("--json",), ("--sql", "SELECT 1"), ("prune", "--before", "2026-01-01")):
        status, out, err = history(*words, store=missing)
        assert (status, out) == (2, "")
        assert err.startswith(f"tfperf: history {missing}: there is no such folder; the first run ")
    assert not (tmp_path / "mistyped").exists()


def test_a_store_without_the_project_names_its_projects(history, tmp_path, address):
    said = f"tfperf: history {address}: no run of project 'dem'; did you mean 'demo'? valid: "
    assert history(project="dem") == (1, "", f"{said}demo\n")
    query = "SELECT value FROM runs"
    for words in (("--sql", query), ("prune", "--before", "2026-02-01", "--dry-run")):
        assert history(*words, project="dem")[2].startswith(said)
    assert history("--sql", f"{query} WHERE value > 99")[2] == ""
    (tmp_path / "empty").mkdir()
    assert history(store=str(tmp_path / "empty"))[2].endswith("empty: it has no runs\n")


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


def test_a_query(history):
    query = "SELECT count(*) AS n FROM runs WHERE metric = 'step_time'"
    assert history("--sql", query)[1].split() == ["n", "--", "82"]
    assert json.loads(history("--sql", query, "--json")[1]) == {"columns": ["n"], "rows": [[82]]}
    assert history("--sql", "DROP TABLE runs")[0] == 2


def test_a_page(history, tmp_path):
    status, _, err = history("-o", "trend.html")
    assert (status, err) == (0, "tfperf: trend.html was written\n")
    assert json.loads(history("-o", "trend.html", "--json")[1])
    page = (tmp_path / "trend.html").read_text("utf-8")
    assert "test_train: Since commit 000000000018: 10 % slower" in page
    assert page.count('class="chart history"') == 2
    assert history("-o", "trend.txt")[0] == 2


def test_a_page_has_one_unit(history, tmp_path):
    store = str(tmp_path / "other")
    values = [*[2000.0, 2010.0] * 5, *[1000.0, 1005.0] * 5]
    runs = [
        run_at(n, commit=f"{n:012x}", tests=[record_of(profile(throughput=one))])
        for n, one in enumerate(values)
    ]
    store_of(*runs, store=open_store(store))
    assert history("-o", "trend.html", "--metric", "throughput", store=store)[0] == 0
    page = (tmp_path / "trend.html").read_text("utf-8")
    change = "Since commit 00000000000a: 50 % less, 2,005 examples/s to 1,002 examples/s"
    assert page.count(change) == 2  # the verdict, and the note on the chart
    assert not re.search(r"\d /s|\d/s", page)


def test_what_is_not_there(history):
    for words, status, said in (
        (
            ("test_trian",),
            1,
            "no run of 'test_trian'; did you mean 'test_train'? valid: test_eval, ",
        ),
        (("--metric", "step_tim"), 1, "no run with step_tim is stored for project demo, branch "),
        (("--since", "2027-01-01"), 1, "project demo, branch main since 2027-01-01"),
        (("--since", "soon"), 2, "'soon' is no date, such as 2026-11-24"),
        (("--branch", "none"), 1, "branch none; stored: branch main, branch topic"),
    ):
        found, _, err = history(*words)
        assert (found, said in err) == (status, True), err


def test_runs_without_a_branch_are_named(history, tmp_path):
    store = str(tmp_path / "other")
    store_of(run_at(0, branch="", commit=""), store=open_store(store))
    status, _, err = history(store=store)
    assert status == 1
    assert (
        "branch main; stored: runs without a branch (git or a variable of CI names the branch"
        in err
    )


def test_runs_of_a_changed_work_tree_are_counted(history, tmp_path):
    store = str(tmp_path / "other")
    store_of(run_at(0, commit="abc123+"), run_at(1, commit="abc123+"), store=open_store(store))
    assert "branch main; 2 runs of a changed work tree left out" in history(store=store)[2]


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


def test_numbers_that_json_has_not_are_texts(history):
    found = json.loads(history("--sql", "SELECT 1.0::double / 0 AS a, 2 AS b", "--json")[1])
    assert found["rows"] == [["inf", 2]]


def test_damaged_settings_of_the_project_are_a_sentence(history, tmp_path, capsys):
    (tmp_path / "pytest.ini").write_text("[pytest\n")
    assert main(["history"]) == 2
    assert "pytest.ini" in capsys.readouterr().err


def test_without_a_store_the_command_says_how_to_name_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["history"])
    said = "give its folder or URL, as in tfperf history s3://team/tfperf, or set the ini value"
    assert f"no store: {said}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["history", "./mistyped"])
    assert f"no store: ./mistyped is no folder and no URL; {said}" in capsys.readouterr().err


def test_the_store_is_the_first_of_two_arguments_or_a_folder_or_a_url(
    history, address, tmp_path, capsys
):
    def asked(*words):
        return main(["history", *words, "--project", "demo"]), *capsys.readouterr()

    assert "test_eval" in asked(address)[1]
    assert "test_eval" in asked(f"file://{address}")[1]
    status, out, _ = asked(address, "test_train")
    assert (status, out) == history("test_train")[:2]
    words = ("prune", "--before", "2027-01-01", "--dry-run")
    assert asked(address, *words)[1] == "42 runs of demo would be removed\n"
    missing = asked("mistyped", "test_train")
    assert missing[0] == 2
    assert missing[2].startswith("tfperf: history mistyped: there is no such folder")
    with pytest.raises(SystemExit):
        asked(address, "test_train", "--store", address)
    assert "two stores: " in capsys.readouterr().err
    for name in ("prune", "test_train"):  # folders of that name are no stores here
        (tmp_path / name).mkdir()
    assert asked("test_train", "--store", address) == (0, out, "")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntfperf_history = {address}\n")
    assert asked(*words)[1] == "42 runs of demo would be removed\n"
