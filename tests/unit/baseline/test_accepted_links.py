"""Accepting runs where a branch has links, or a run file a name that no file can have."""

import json

import pytest
from helpers.builders import profile, record_of, run_of

from pytest_tfperf.cli.main import main


@pytest.fixture
def accept(tmp_path, monkeypatch, capsys):
    """Accept a run of a test in a project; return the status and what was said."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "project/test_model.py").touch()

    def accept(*words, file="test_model.py"):
        content = run_of(record_of(profile(retraces=0), file=file)).to_json()
        (tmp_path / "run.json").write_text(json.dumps(content))
        status = main(["accept", str(tmp_path / "run.json"), *words])
        return status, capsys.readouterr().err

    return accept


def test_links_in_a_circle_are_refused_in_one_sentence(accept, tmp_path):
    (tmp_path / "project/__tfperf__").symlink_to("__tfperf__")
    status, said = accept()
    assert status == 2
    assert "leads out of" in said
    assert len(said.splitlines()) == 1


def test_a_name_that_no_file_can_have_is_refused_in_one_sentence(accept):
    status, said = accept(file="x" * 5000)
    assert status == 2
    assert "Traceback" not in said
