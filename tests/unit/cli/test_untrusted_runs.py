"""Run files of another person: where they may write, and what a spreadsheet may not run; test_hostile_text.py has other outputs."""

import csv
import re
from dataclasses import replace

import pytest
from helpers.builders import profile, record_of, run_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    root.mkdir()
    (root / "test_model.py").write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("victim.py", "settings.toml"):
        (outside / name).write_text("")
    monkeypatch.chdir(root)
    return root


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(project, capsys, file):
    """Accept a run of a test file below each kind of folder of baselines: no file changes, and one sentence says why."""
    write_run(run_of(record_of(profile(), file=file)), project / "run.json")
    before = files_of(project.parent)
    for options in ([], ["--baseline-dir", "stored"]):
        assert main(["accept", "run.json", *options]) == 2, (file, options)
        said = capsys.readouterr().err
        told = r"tfperf: test file '.*': a run file may name Python modules below the rootdir .*\n"
        assert re.fullmatch(told, said), (file, options, said)
        assert files_of(project.parent) == before, (file, options)


def test_accept_writes_below_the_rootdir_only(project, capsys):
    outside = project.parent / "outside"
    (project / "linked").symlink_to(outside)
    for file in (
        *("../outside/victim.py", f"{outside}/victim.py", f"{outside}/settings.toml"),
        *("a/../../outside/victim.py", "linked/victim.py", "", ".", ".."),
    ):
        refused(project, capsys, file)


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"file": "a\nb.py"}, "no test file a b.py in"), ({"nodeid": "a\nb", "environment": {}}, "a b: its run")],
)  # fmt: skip
def test_a_name_of_two_lines_is_named_on_one(project, capsys, changed, says):
    write_run(run_of(replace(record_of(profile()), **changed)), project / "run.json")
    assert main(["accept", "run.json"]) == 2
    assert re.fullmatch(rf"tfperf: {says}.*\n", capsys.readouterr().err)


def test_accept_writes_for_python_modules_only(project, capsys):
    for file in (".git/config", "pyproject.toml", "test_model.txt"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).touch()
        refused(project, capsys, file)


def test_accept_follows_no_link_of_baselines_out_of_the_project(project, capsys):
    (project / "__tfperf__").symlink_to(project.parent / "outside")
    write_run(run_of(record_of(profile(), file="test_model.py")), project / "run.json")
    before = files_of(project.parent)
    assert main(["accept", "run.json"]) == 2
    assert "leads out of" in capsys.readouterr().err
    assert files_of(project.parent) == before


def test_a_cell_of_csv_is_no_formula(project):
    for text in ("=HYPERLINK(1)", "@SUM(1)", "+1+cmd", "-2+3", "\tx", "\rx"):
        run = run_of(record_of(profile(text, step_time=0.5), key=text, file=text), commit=text)
        write_run(run, project / "run.csv")
        with (project / "run.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows, text
        for row in rows:
            assert not [cell for name, cell in row.items() if cell[:1] in set("=+-@\t\r")], text
            assert row["test"] == ("\ufffdx" if text == "\rx" else f"'{text}"), text
        [time] = [row for row in rows if row["metric"] == "step_time"]
        assert float(time["value"]) == 0.5, "numbers stay numbers"


def test_the_help_says_what_a_failing_disk_leaves(capsys):
    with pytest.raises(SystemExit):
        main(["accept", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "If one cannot be written, those before it are, and the same command writes the rest"
        in said
    )
