"""Baseline files that are written together, and those that another program changes meanwhile."""

import json

import pytest
from helpers.baselines import runs_of, update
from helpers.builders import LAPTOP, profile, record_of

from pytest_tfperf.baseline import record as record_module
from pytest_tfperf.baseline.draft import Draft, OutdatedError
from pytest_tfperf.baseline.store import read_structure
from pytest_tfperf.errors import BaselineError

EMPTY = {"format": 1, "tests": {}}


def draft_of(*paths):
    draft = Draft()
    for path in paths:
        draft.content(path)
        draft.change(path, EMPTY)
    return draft


def test_changes_are_seen_before_they_are_written(tmp_path):
    path = tmp_path / "a.json"
    draft = Draft()
    assert draft.content(path) == {}
    draft.change(path, EMPTY)
    assert draft.content(path) == EMPTY
    assert not path.exists()
    draft.write()
    assert (json.loads(path.read_text()), list(tmp_path.iterdir())) == (EMPTY, [path])


def test_where_some_files_were_written_the_message_says_which(tmp_path):
    first, second, folder = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    draft = draft_of(first, second, folder)
    folder.mkdir()
    (folder / "kept").write_text("")
    draft._check = lambda: None
    with pytest.raises(BaselineError) as refusal:
        draft.write()
    assert str(refusal.value) == (
        f"baseline {folder}: cannot be written: Is a directory; 2 of 3 files were written before "
        f"({first}, {second}); mend that, and run the same again: it writes the rest"
    )
    assert sorted(tmp_path.iterdir()) == [first, second, folder]


@pytest.mark.parametrize("now", ["another", "gone", "new"])
def test_a_file_that_is_no_longer_as_it_was_read_is_not_written(tmp_path, now):
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    if now != "new":
        path.write_text(json.dumps(EMPTY))
    draft = draft_of(other, path)
    if now == "gone":
        path.unlink()
    else:
        path.write_text(json.dumps({**EMPTY, "format": 1, "by": "another"}))
    with pytest.raises(OutdatedError, match="another program changes it at the same time; nothing"):
        draft.write()
    assert not other.exists()
    assert path.exists() == (now != "gone")
    assert not [left for left in tmp_path.iterdir() if left not in (path, other)]


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something after the files of an update were read and before they are written, so many times."""

    def begin(times, action):
        left, real = iter(range(times)), record_module._of_file

        def acting(*arguments):
            done = real(*arguments)
            if next(left, None) is not None:
                action()
            return done

        monkeypatch.setattr(record_module, "_of_file", acting)

    return begin


def test_an_update_of_another_user_in_between_is_kept(place, meanwhile):
    def other():
        meanwhile(0, None)
        update(place, record_of(profile(retraces=1, step_time=0.2), key="test_other"))

    real = record_module.locked
    record_module.locked = lambda _: real([])  # that user's locks are elsewhere
    try:
        meanwhile(1, other)
        update(place, record_of(profile(retraces=0, step_time=0.1)))
    finally:
        record_module.locked = real
    assert set(read_structure(place.structure)) == {"test_step", "test_other"}
    assert [run["step_time"] for run in runs_of(place)["runs"]] == [0.1]
    assert [run["step_time"] for run in runs_of(place, "test_other")["runs"]] == [0.2]


def test_a_file_that_changes_all_the_time_is_said(place, meanwhile):
    number = iter(range(1000))
    place.structure.parent.mkdir(parents=True)

    def change():
        place.structure.write_text(json.dumps({**EMPTY, "number": next(number)}))

    meanwhile(100, change)
    with pytest.raises(BaselineError, match="another program changes it at the same time"):
        update(place, record_of(profile(retraces=0, step_time=0.1)))
    assert next(number) == record_module._TRIES + 1
    assert not place.timing_file(LAPTOP["machine"]).exists()
