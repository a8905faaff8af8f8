"""Run files of another person: where they may write, what they may hold, and what they may print."""

import copy
import csv
import json
import random
import re
from pathlib import Path

import pytest
from helpers.builders import check, profile, record_of, run_of
from helpers.paths import DATA
from helpers.sample_run import a_run

from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run

OLD_RUN = json.loads((DATA / "previous_version" / "run.json").read_text("utf-8"))


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


@pytest.mark.parametrize("options", [[], ["--baseline-dir", "stored"]])
@pytest.mark.parametrize(
    "file", ["../outside/victim.py", "/{outside}/victim.py", "/{outside}/settings.toml", "a/../../outside/victim.py", "linked/victim.py", "", ".", ".."],
)  # fmt: skip
def test_accept_writes_below_the_rootdir_only(project, capsys, file, options):
    (project / "linked").symlink_to(project.parent / "outside")
    file = file.replace("/{outside}", str(project.parent / "outside"))
    write_run(run_of(record_of(profile(), file=file)), project / "run.json")
    before = files_of(project.parent)
    assert main(["accept", "run.json", *options]) == 2
    assert re.fullmatch(r"tfperf: test file '.*' lies outside of .*\n", capsys.readouterr().err)
    assert files_of(project.parent) == before


def test_accept_follows_no_link_of_baselines_out_of_the_project(project, capsys):
    (project / "__tfperf__").symlink_to(project.parent / "outside")
    write_run(run_of(record_of(profile(), file="test_model.py")), project / "run.json")
    before = files_of(project.parent)
    assert main(["accept", "run.json"]) == 2
    assert "leads out of" in capsys.readouterr().err
    assert files_of(project.parent) == before


FORMULAS = ["=HYPERLINK(1)", "@SUM(1)", "+1+cmd", "-2+3", "\tx", "\rx"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_of_csv_is_no_formula(project, text):
    run = run_of(record_of(profile(text, step_time=0.5), key=text, file=text), commit=text)
    write_run(run, project / "run.csv")
    with (project / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert not [cell for name, cell in row.items() if cell[:1] in set("=+-@\t\r")]
        assert row["test"] == ("\ufffdx" if text == "\rx" else f"'{text}")
    [time] = [row for row in rows if row["metric"] == "step_time"]
    assert float(time["value"]) == 0.5, "numbers stay numbers"


HOSTILE = "\x1b]0;title\x07\x1b[31m\u202e\u2066\x9b\x00\r"
LINES = "\n::error::x\n##[add-mask]y\n"


def texts_replaced(content, text):
    """The content with this text added to every string that names something."""
    if isinstance(content, dict):
        kept = {
            "unit",
            "source",
            "verdict",
            "kind",
            "outcome",
            "relation",
            "scope",
            "better",
            "created",
        }
        return {
            key: item if key in kept else texts_replaced(item, text)
            for key, item in content.items()
        }
    if isinstance(content, list):
        return [texts_replaced(item, text) for item in content]
    return content + text if isinstance(content, str) else content


@pytest.mark.parametrize(
    "command", [["show"], ["show", "-v"], ["compare", "ref.json"], ["compare", "-v", "ref.json"], ["accept"]],
    ids=" ".join,
)  # fmt: skip
def test_no_text_of_a_run_file_controls_the_terminal_or_the_log_of_a_job(project, capsys, command):
    write_run(a_run(), project / "ref.json")
    hostile = texts_replaced(a_run().to_json(), HOSTILE + LINES)
    (project / "run.json").write_text(json.dumps(hostile))
    main([*command, "run.json"])
    out, err = capsys.readouterr()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err)
    assert not re.search(r"^(::|##\[)", out + err, re.MULTILINE)


@pytest.mark.parametrize("ending", ["md", "html"])
def test_no_text_of_a_run_file_is_markup(project, ending):
    text = " @octocat ![x](http://evil/p.png) <img src=http://evil/q.png> |"
    run = run_of(record_of(profile(text, step_time=0.5), key=text, checks=[check("FAIL", text)]))
    content = run.to_json()
    content["created"] += text
    (project / "run.json").write_text(json.dumps(content))
    assert main(["report", "run.json", "-o", f"run.{ending}"]) == 0
    page = (project / f"run.{ending}").read_text("utf-8")
    if ending == "html":
        assert "<img" not in page
        return
    prose = re.sub(r"(?s)(`{3,})text\n.*?\n\1|(`+)[^\n]*?(?<!`)\2(?!`)", "", page)
    assert "@octocat" not in prose
    assert "evil" not in prose


ODD = [None, True, 0, -1, 1.5, "", "<b>", "x" * 2000, [], {}, [1], {"a": 1}, "../x", 10**17, 1e299, "\x1b[31m"]  # fmt: skip


def places(content, path=()):
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def mutant(content, paths, chance):
    """A copy of the content in which one or two places are missing or hold something else."""
    changed = copy.deepcopy(content)
    for _ in range(chance.choice([1, 2])):
        *above, last = chance.choice(paths)
        holder = changed
        try:
            for key in above:
                holder = holder[key]
            if chance.random() < 0.2:
                del holder[last]
            else:
                holder[last] = chance.choice(ODD)
        except (KeyError, IndexError, TypeError):
            continue
    return changed


@pytest.mark.parametrize("content", [OLD_RUN, a_run().to_json()], ids=["old", "new"])
def test_mutants_of_run_files_give_an_answer_or_one_sentence(project, capsys, content):
    chance = random.Random(1)
    paths = [path for path in places(content) if path]
    Path("ref.json").write_text(json.dumps(content))
    before = files_of(project)
    for _ in range(40):
        text = json.dumps(mutant(content, paths, chance))
        Path("mutant.json").write_text(text)
        for command in (
            ["show", "-v", "mutant.json"],
            ["report", "mutant.json", "-o", "out.html"],
            ["report", "mutant.json", "-o", "out.md"],
            ["report", "mutant.json", "-o", "out.csv"],
            ["compare", "ref.json", "mutant.json"],
            ["accept", "mutant.json", "--rootdir", "nowhere"],
        ):
            status = main(command)
            err = capsys.readouterr().err
            assert status in (0, 1, 2, 3)
            assert status != 2 or re.fullmatch(r"tfperf: [^\n]+(\n  [^\n]+)*\n", err), text
    written = files_of(project).keys() - before.keys()
    assert {path.name for path in written} <= {"mutant.json", "out.html", "out.md", "out.csv"}
    for path in written & {project / "out.md", project / "out.csv"}:
        assert not re.search(r"\b(NaN|Infinity)\b", path.read_text("utf-8"))
