"""Links of a branch that would lead baselines elsewhere: accepting and updating refuse them, and write nothing."""

import json
import re

import pytest
from helpers.builders import profile, record_of, run_of

from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place
from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import BaselineError

RECORD = record_of(profile(retraces=0), file="tests/test_model.py")
STORED = "tests/__tfperf__/test_model.json"


@pytest.fixture
def new_project(new_project, monkeypatch):
    """As any, with a folder outside of it and a run file; it is the working folder then."""

    def made():
        root = new_project()
        (root.parent / "outside").mkdir()
        (root.parent / "run.json").write_text(json.dumps(run_of(RECORD).to_json()))
        monkeypatch.chdir(root)
        return root

    return made


def accepted(project, folder, capsys):
    words = [] if folder is None else ["--baseline-dir", str(folder)]
    status = main(["accept", "../run.json", *words])
    return status == 0, capsys.readouterr().err


def updated(project, folder, capsys):
    """As `--tfperf-update` does, with the folder that the option and the ini value give."""
    place = Place.of(RECORD.file, project, None if folder is None else project / folder)
    try:
        record({place: [run_of(RECORD)]}, only_new=False, also_partly=True)
    except BaselineError as error:
        return False, str(error)
    return True, ""


WAYS = pytest.mark.parametrize("store", [accepted, updated])


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@WAYS
def test_a_link_of_the_project_that_leaves_it_is_refused(new_project, capsys, store):
    cases = [
        ("bl", "../outside", "bl"),
        ("bl", "{outside}", "bl"),
        ("bl", "../outside/made", "bl"),
        ("a/bl", "../../outside", "a/bl/deep"),
        ("bl", "..", "bl/outside"),
        ("bl/tests", "../../outside", "bl"),
        ("bl/tests/test_model.json", "{outside}/test_model.json", "bl"),
        ("bl", "bl", "bl"),
        ("tests/__tfperf__", "../../outside", None),
        ("tests/__tfperf__/timing", "../../../outside", None),
        ("tests/__tfperf__/test_model.json", "{outside}/test_model.json", None),
        ("tests/__tfperf__", "{project}/bl", None),  # with the next one, a chain
    ]
    for link, target, folder in cases:
        project = new_project()
        (project / link).parent.mkdir(parents=True, exist_ok=True)
        outside = project.parent / "outside"
        if "{project}" in target:
            (project / "bl").symlink_to(outside)
        (project / link).symlink_to(target.format(outside=outside, project=project))
        before = files_of(project.parent)
        is_good, said = store(project, folder, capsys)
        assert not is_good, (link, target)
        assert re.search(r"leads out of .*nothing was written", said), (link, target)
        assert files_of(project.parent) == before, (link, target)
        assert list(outside.iterdir()) == [], (link, target)


@WAYS
def test_a_folder_elsewhere_that_the_user_names_is_written(new_project, capsys, store):
    for name in ["../outside", "{outside}", "{outside}/made"]:
        project = new_project()
        folder = name.format(outside=project.parent / "outside")
        is_good, said = store(project, folder, capsys)
        assert is_good, (name, said)
        assert (project / folder / "tests/test_model.json").is_file(), name


@WAYS
def test_a_link_outside_of_the_project_is_the_user_s(project, capsys, store):
    (project.parent / "linked").symlink_to("outside")
    assert store(project, "../linked", capsys)[0]
    assert (project.parent / "outside/tests/test_model.json").is_file()


@WAYS
def test_a_folder_elsewhere_is_not_left_by_its_links(project, capsys, store):
    (project.parent / "outside/tests").symlink_to("../elsewhere")
    is_good, said = store(project, "../outside", capsys)
    assert not is_good
    assert "leads out of" in said
    assert not (project.parent / "elsewhere").exists()


@WAYS
def test_a_project_that_a_link_leads_to_is_one(project, capsys, store, monkeypatch):
    (project.parent / "linked").symlink_to("project")
    monkeypatch.chdir(project.parent / "linked")
    assert store(project.parent / "linked", None, capsys)[0]
    assert (project / STORED).is_file()


@WAYS
def test_a_link_within_the_project_is_followed(project, capsys, store):
    (project / "kept").mkdir()
    (project / "tests/__tfperf__").symlink_to("../kept")
    assert store(project, None, capsys)[0]
    assert (project / "kept/test_model.json").is_file()
