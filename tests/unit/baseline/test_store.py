"""Baseline files: what is in them, when they are written, and what becomes of damaged ones."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from helpers.baselines import runs_of, update
from helpers.builders import LAPTOP, SERVER, profile, record_of
from helpers.faults import failing
from helpers.paths import ROOT, TESTS

from pytest_tfperf.baseline import store
from pytest_tfperf.baseline.store import (
    Place,
    entry_key,
    locked,
    machine_slug,
    read_file,
    read_structure,
    read_times,
)
from pytest_tfperf.errors import BaselineError


def test_an_entry_is_named_by_test_and_profile():
    assert entry_key("test_a", "") == "test_a"
    assert entry_key("TestA::test_b[8]", "eval") == "TestA::test_b[8]/eval"


def test_baselines_are_beside_the_test_file_or_mirror_its_path(tmp_path):
    beside = Place.of("a/b/test_x.py", tmp_path, None)
    assert beside.structure == tmp_path / "a/b/__tfperf__/test_x.json"
    assert beside.timing == tmp_path / "a/b/__tfperf__/timing"
    mirrored = Place.of("a/b/test_x.py", tmp_path, Path("kept"))
    assert mirrored.structure == tmp_path / "kept/a/b/test_x.json"
    assert mirrored.timing == tmp_path / "kept/a/b/timing"
    elsewhere = Place.of("a/b/test_x.py", tmp_path, Path("/srv/kept"))
    assert elsewhere.structure == Path("/srv/kept/a/b/test_x.json")


def test_machine_classes_have_readable_and_distinct_file_names():
    more_cores = {**LAPTOP["machine"], "cores": 8}
    slugs = [
        machine_slug(machine) for machine in (LAPTOP["machine"], more_cores, SERVER["machine"])
    ]
    assert [slug.rpartition("-")[0] for slug in slugs] == [
        "cpu-laptop-3000",
        "cpu-laptop-3000",
        "h100-server-9000",
    ]
    assert len(set(slugs)) == 3
    assert machine_slug(dict(reversed(LAPTOP["machine"].items()))) == slugs[0]


WRITER = """
import sys
import tempfile
from pathlib import Path
from helpers.builders import profile, record_of, run_of
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place

who, rootdir, n_records = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
place = Place.of("test_model.py", rootdir, None)
print("ready", flush=True)
sys.stdin.readline()
for n in range(n_records):
    record({place: [run_of(record_of(profile(retraces=n, step_time=0.1), key=f"test_{who}_{n}"))]}, False)
"""


@pytest.mark.usefixtures("processes")
def test_two_processes_that_update_one_file_at_once_lose_nothing(tmp_path):
    folders = TESTS, ROOT  # of builders, and of the package
    options = {
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        "text": True,
    }
    commands = [
        [sys.executable, "-c", WRITER, who, str(tmp_path), "12"] for who in ("left", "right")
    ]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        for command in commands
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    place = Place.of("test_model.py", tmp_path, None)
    expected = {f"test_{who}_{n}" for who in ("left", "right") for n in range(12)}
    assert set(read_structure(place.structure)) == expected
    assert set(read_times(place.timing_file(LAPTOP["machine"]))) == {
        place.timing_key(key) for key in expected
    }


def structure_file(**entry):
    whole = {"workload": {}, "program": {}, "platform": {}, "setting": {}} | entry
    return json.dumps({"format": 1, "tests": {"test_step": whole}})


def timing_file(**entry):
    whole = {"workload": {}, "anchor": {}, "runs": []} | entry
    return json.dumps({"format": 1, "machine": {}, "tests": {"test_model.py::test_step": whole}})


def test_the_builders_of_damaged_files_build_good_ones(tmp_path):
    for text, read in (
        (structure_file(program={"retraces": 1}), read_structure),
        (timing_file(runs=[{"step_time": 0.1, "commit": "abc"}]), read_times),
    ):
        path = tmp_path / "some.json"
        path.write_text(text)
        assert len(read(path)) == 1


CONFLICT = """\
{
<<<<<<< HEAD
  "format": 1,
=======
  "format": 1,
>>>>>>> branch
  "tests": {}
}
"""
DAMAGED = {
    "truncated": (structure_file(program={"retraces": 1})[:60], "not JSON"),
    "empty": ("", "not JSON"),
    "no JSON": ("step_time: 5\n", "not JSON"),
    "conflict marks": (
        CONFLICT,
        "has conflict marks of a merge; keep one side, or delete the file and run --tfperf-update",
    ),
    "newer format": (
        '{"format": 3, "suites": []}',
        "format 3, this version reads up to 2; upgrade pytest-tfperf",
    ),
    "a list": ("[]", "not a baseline file"),
    "a number": ("5", "not a baseline file"),
    "no format": ('{"tests": {}}', "not a baseline file"),
    "format as text": ('{"format": "1", "tests": {}}', "not a baseline file"),
    "no tests": ('{"format": 1}', "damaged: "),
    "tests as a list": ('{"format": 1, "tests": []}', "damaged: "),
    "an entry as a list": ('{"format": 1, "tests": {"test_step": []}}', "damaged: "),
    "an entry without sections": (
        '{"format": 1, "tests": {"test_step": {"workload": {}}}}',
        "damaged: ",
    ),
    "a workload as text": (structure_file(workload="batch 8"), "damaged: "),
    "a section as a list": (structure_file(program=[]), "damaged: "),
    "a metric as text": (structure_file(program={"retraces": "none"}), "damaged: "),
    "a metric as null": (structure_file(program={"retraces": None}), "damaged: "),
    "a metric as NaN": (
        structure_file(program={"retraces": float("nan")}),
        "not JSON: NaN is no number",
    ),
    "a platform as a number": (structure_file(platform={"cpu": 5}), "damaged: "),
    "a setting as a list": (structure_file(setting=[]), "damaged: "),
    "a history in place of structure": (
        '{"format": 1, "tests": {"test_step": {"workload": {}, "anchor": {}, "runs": []}}}',
        "damaged: ",
    ),
    "a created that is no text": (
        timing_file(runs=[{"step_time": 0.1, "created": 5}]),
        "damaged: ",
    ),
    "a commit that is no text": (
        timing_file(runs=[{"step_time": 0.1, "commit": 5}]),
        "damaged: ",
    ),
    "a step that takes no time": (timing_file(runs=[{"step_time": 0}]), "damaged: "),
    "a step of a picosecond": (timing_file(runs=[{"step_time": 1e-12}]), "damaged: "),
    "a step of a year": (timing_file(runs=[{"step_time": 3e7}]), "damaged: "),
    "an anchor below zero": (timing_file(anchor={"step_time": -1}), "damaged: "),
    "an anchor of no run": (timing_file(anchor={"step_time": 1, "runs": 0}), "damaged: "),
    "a since that is no text": (timing_file(since=5), "damaged: "),
    "runs as an object": (timing_file(runs={}), "damaged: "),
    "a run as a number": (timing_file(runs=[0.1]), "damaged: "),
    "a time as text": (timing_file(runs=[{"step_time": "fast"}]), "damaged: "),
    "a field that is no text": (timing_file(**{"\ud800": 1}), "damaged: "),
    "inputs as numbers": (structure_file(workload={"inputs": [8]}), "damaged: "),
    "no anchor": (timing_file(anchor=None), "damaged: "),
}


@pytest.mark.parametrize("kind", ["structure", "timing"])
def test_a_damaged_file_is_named_refused_and_left_as_it_is(place, kind):
    path = place.structure if kind == "structure" else place.timing_file(LAPTOP["machine"])
    path.parent.mkdir(parents=True)
    measured = record_of(profile(retraces=0, step_time=0.1))
    for damage, (text, said) in DAMAGED.items():
        path.write_text(text)
        for attempt in (read_file, lambda _: update(place, measured)):
            with pytest.raises(BaselineError) as refusal:
                attempt(path)
            message = str(refusal.value)
            assert message.startswith(f"baseline {path}: {said}"), damage
            advice = ("restore it from git", "keep one side", "upgrade")
            assert any(one in message for one in advice), (damage, message)
        assert path.read_text() == text, damage
        files = [file for file in place.structure.parent.rglob("*") if file.is_file()]
        assert files == [path], damage


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "kept").write_text("a file where a folder should be")
    place = Place.of("test_model.py", tmp_path, Path("kept"))
    with pytest.raises(BaselineError, match=rf"baseline {place.structure}|baseline {place.timing}"):
        update(place, record_of(profile(retraces=0, step_time=0.1)))
    assert (tmp_path / "kept").read_text() == "a file where a folder should be"


def test_what_cannot_be_written_is_named_and_the_same_update_completes_it(place):
    measured = record_of(profile(retraces=0, step_time=0.1))
    place.timing.parent.mkdir(parents=True)
    place.timing.write_text("a file where a folder should be")
    told = rf"^baseline {place.timing}.*: cannot be read: Not a directory"
    with pytest.raises(BaselineError, match=told):
        update(place, measured)
    assert not place.structure.exists()
    place.timing.unlink()
    place.timing.mkdir()
    full_disk = failing(place.timing, 1, errno.ENOSPC, lasting=True, kinds=("mkdir",))
    with full_disk, pytest.raises(BaselineError) as full:
        update(place, measured)
    assert str(full.value) == (
        f"baseline {place.timing_file(LAPTOP['machine'])}: cannot be written: No space left on "
        "device; mend that, and run the same again: it writes the rest"
    )
    assert place.structure.exists()
    assert list(place.timing.iterdir()) == []
    update(place, measured)
    assert len(runs_of(place)["runs"]) == 1


def test_a_lock_that_another_run_holds_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_LOCK_SECONDS", 0)
    with (
        locked([tmp_path]),
        pytest.raises(
            BaselineError,
            match=r"baselines: nothing was changed: waited 0 s until another run .*: try again",
        ),
        locked([tmp_path]),
    ):
        pass
    with locked([tmp_path, tmp_path / "." / "deep"]):
        pass  # it is free again, and each of several is taken


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_that_has_no_locks_is_said(tmp_path, monkeypatch, reason):
    """As a network file system can be, with the folder of temporary files on it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refusing(reason))
    told = rf"nothing was changed: no lock in .*: {os.strerror(reason)}; TMPDIR names another"
    with pytest.raises(BaselineError, match=told), locked([tmp_path]):
        pass


def refusing(reason):
    def refuse(*_):
        raise OSError(reason, os.strerror(reason))

    return refuse


def test_a_user_without_a_name_has_locks_too(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "getpass.getuser",
        lambda: (_ for _ in ()).throw(KeyError("getpwuid(): uid not found: 12345")),
    )
    with locked([tmp_path]):
        pass
