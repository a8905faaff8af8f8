"""Baseline files: what is in them, when they are written, and what becomes of damaged ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import LAPTOP, SERVER, profile, record_of, value

from pytest_tfperf.baseline.store import Place, entry_key, machine_slug, read_entries, read_machine, record, rounded
from pytest_tfperf.errors import BaselineError

OTHER_WORKLOAD = {"inputs": ["float32[16, 4]"], "batch": 16}


@pytest.fixture
def place(tmp_path):
    return Place.of("tests/test_model.py", tmp_path, None)


def update(place, *records, commit="abc123", only_new=False):
    return [(change.key, change.what) for change in record(place, records, commit, only_new)]


def update_new(place, *records):
    return update(place, *records, only_new=True)


def runs_of(place, key="test_step", environment=LAPTOP):
    return read_entries(place.timing_file(environment["machine"]))[place.timing_key(key)]


GOLDEN = """\
{
  "format": 1,
  "tests": {
    "TestA::test_b[8-f32]/eval": {
      "platform": {
        "cpu, TensorFlow 2.21, oneDNN on": {
          "xla_clusters": 1
        }
      },
      "program": {
        "retraces": 0
      },
      "setting": {
        "commit": "abc123",
        "precision": "float32",
        "tensorflow": "2.21.0"
      },
      "workload": {
        "batch": 8,
        "inputs": [
          "float32[8, 4]"
        ]
      }
    },
    "test_größe": {
      "platform": {
        "cpu, TensorFlow 2.21, oneDNN on": {
          "peak_memory": 123456789,
          "xla_coverage": 0.333333
        }
      },
      "program": {
        "flops": 1234570000.0
      },
      "setting": {
        "commit": "abc123",
        "precision": "float32",
        "tensorflow": "2.21.0"
      },
      "workload": {
        "batch": 8,
        "inputs": [
          "float32[8, 4]"
        ]
      }
    }
  }
}
"""


def test_a_structure_file_is_sorted_rounded_and_has_one_line_a_metric(place):
    update(
        place,
        record_of(profile(xla_coverage=1 / 3, peak_memory=123456789.0, flops=1234567890.5), key="test_größe"),
        record_of(profile("eval", retraces=0, xla_clusters=1.0, step_time=0.1), key="TestA::test_b[8-f32]"),
    )
    assert place.structure.read_text(encoding="utf-8") == GOLDEN


@pytest.mark.parametrize(
    ("number", "stored"),
    [(3.0, 3), (0, 0), (123456789.0, 123456789), (1 / 3, 0.333333), (1234567.5, 1234570.0), (1e-9 / 3, 3.33333e-10), (-2.5, -2.5)],
)
def test_numbers_are_stored_whole_or_to_six_digits(number, stored):
    assert (rounded(number), type(rounded(number))) == (stored, type(stored))


def test_what_is_written_is_read_again(place):
    assert read_entries(place.structure) == {}
    assert update(place, record_of(profile(retraces=2, xla_clusters=1, step_time=0.1))) == [("test_step", "recorded")]
    entry = read_entries(place.structure)["test_step"]
    assert entry["program"] == {"retraces": 2}
    assert entry["platform"] == {LAPTOP["platform"]: {"xla_clusters": 1}}
    assert entry["workload"] == {"inputs": ["float32[8, 4]"], "batch": 8}
    assert runs_of(place)["runs"] == [{"step_time": 0.1, "commit": "abc123"}]
    assert read_machine(place.timing_file(LAPTOP["machine"])) == LAPTOP["machine"]


@pytest.mark.parametrize(("test", "name", "key"), [("test_a", "", "test_a"), ("TestA::test_b[8]", "eval", "TestA::test_b[8]/eval")])
def test_an_entry_is_named_by_test_and_profile(test, name, key):
    assert entry_key(test, name) == key


def test_baselines_are_beside_the_test_file_or_mirror_its_path(tmp_path):
    beside = Place.of("a/b/test_x.py", tmp_path, None)
    assert beside.structure == tmp_path / "a/b/__tfperf__/test_x.json"
    assert beside.timing == tmp_path / "a/b/__tfperf__/timing"
    mirrored = Place.of("a/b/test_x.py", tmp_path, Path("kept"))
    assert mirrored.structure == tmp_path / "kept/a/b/test_x.json"
    assert mirrored.timing == tmp_path / "kept/a/b/timing"
    elsewhere = Place.of("a/b/test_x.py", tmp_path, Path("/srv/kept"))
    assert elsewhere.structure == Path("/srv/kept/a/b/test_x.json")


def test_test_files_of_one_folder_share_a_timing_file_and_keep_apart_in_it(tmp_path):
    for name in ("test_one", "test_two"):
        update(Place.of(f"{name}.py", tmp_path, None), record_of(profile(step_time=0.1), file=f"{name}.py"))
    [shared] = (tmp_path / "__tfperf__" / "timing").iterdir()
    assert set(read_entries(shared)) == {"test_one.py::test_step", "test_two.py::test_step"}


def test_machine_classes_have_readable_and_distinct_file_names():
    more_cores = {**LAPTOP["machine"], "cores": 8}
    slugs = [machine_slug(machine) for machine in (LAPTOP["machine"], more_cores, SERVER["machine"])]
    assert [slug.rpartition("-")[0] for slug in slugs] == ["cpu-laptop-3000", "cpu-laptop-3000", "h100-server-9000"]
    assert len(set(slugs)) == 3
    assert machine_slug(dict(reversed(LAPTOP["machine"].items()))) == slugs[0]


def test_an_update_with_the_same_values_leaves_the_structure_file_byte_for_byte(place):
    measured = record_of(profile(retraces=0, xla_coverage=1 / 3, step_time=0.1))
    update(place, measured)
    before, stamp = place.structure.read_bytes(), place.structure.stat().st_mtime_ns
    assert update(place, measured, commit="def456") == []
    assert (place.structure.read_bytes(), place.structure.stat().st_mtime_ns) == (before, stamp)


def test_an_update_replaces_what_changed_and_leaves_other_tests_alone(place):
    update(place, record_of(profile(retraces=0)), record_of(profile(retraces=5), key="test_other"))
    assert update(place, record_of(profile(retraces=1)), commit="def456") == [("test_step", "updated")]
    entries = read_entries(place.structure)
    assert (entries["test_step"]["program"], entries["test_step"]["setting"]["commit"]) == ({"retraces": 1}, "def456")
    assert (entries["test_other"]["program"], entries["test_other"]["setting"]["commit"]) == ({"retraces": 5}, "abc123")


def test_an_update_on_another_platform_adds_a_section(place):
    update(place, record_of(profile(xla_clusters=1)))
    update(place, record_of(profile(xla_clusters=2), environment=SERVER))
    stored = read_entries(place.structure)["test_step"]["platform"]
    assert stored == {LAPTOP["platform"]: {"xla_clusters": 1}, SERVER["platform"]: {"xla_clusters": 2}}


def test_a_changed_workload_replaces_the_entry_and_begins_its_history_anew(place):
    update(place, record_of(profile(xla_clusters=1, step_time=0.1)))
    update(place, record_of(profile(xla_clusters=1), environment=SERVER))
    changed = record_of(profile(workload=OTHER_WORKLOAD, xla_clusters=3, step_time=0.2))
    assert update(place, changed) == [("test_step", "replaced: the workload was batch 8, inputs ['float32[8, 4]']")]
    entry = read_entries(place.structure)["test_step"]
    assert (entry["workload"], entry["platform"]) == (OTHER_WORKLOAD, {LAPTOP["platform"]: {"xla_clusters": 3}})
    history = runs_of(place)
    assert (history["workload"], history["anchor"]["step_time"], len(history["runs"])) == (OTHER_WORKLOAD, 0.2, 1)


def test_update_new_adds_a_test_and_leaves_the_others(place):
    update(place, record_of(profile(retraces=0)))
    assert update_new(place, record_of(profile(retraces=9)), record_of(profile(retraces=9), key="test_new")) == [("test_new", "recorded")]
    entries = read_entries(place.structure)
    assert (entries["test_step"]["program"], entries["test_new"]["program"]) == ({"retraces": 0}, {"retraces": 9})


def test_update_new_adds_a_platform_and_leaves_what_holds_on_every_machine(place):
    update(place, record_of(profile(retraces=0, xla_clusters=1)))
    assert update_new(place, record_of(profile(retraces=9, xla_clusters=2), environment=SERVER)) == [("test_step", "updated")]
    entry = read_entries(place.structure)["test_step"]
    assert entry["program"] == {"retraces": 0}
    assert entry["platform"] == {LAPTOP["platform"]: {"xla_clusters": 1}, SERVER["platform"]: {"xla_clusters": 2}}


def test_update_new_adds_metrics_that_are_new_and_leaves_the_others(place):
    update(place, record_of(profile(retraces=0, xla_clusters=1)))
    update_new(place, record_of(profile(retraces=9, eager_ops=2, xla_clusters=9, fusions=4)))
    entry = read_entries(place.structure)["test_step"]
    assert (entry["program"], entry["platform"][LAPTOP["platform"]]) == ({"retraces": 0, "eager_ops": 2}, {"xla_clusters": 1, "fusions": 4})


def test_update_new_leaves_an_entry_for_another_workload(place):
    update(place, record_of(profile(retraces=0, step_time=0.1)))
    files = [place.structure, place.timing_file(LAPTOP["machine"])]
    before = [file.read_bytes() for file in files]
    assert update_new(place, record_of(profile(workload=OTHER_WORKLOAD, retraces=9, step_time=0.9))) == []
    assert [file.read_bytes() for file in files] == before


def test_update_new_adds_a_machine_class_and_no_second_run(place):
    update(place, record_of(profile(step_time=0.1)))
    update_new(place, record_of(profile(step_time=0.2)))
    update_new(place, record_of(profile(step_time=0.3), environment=SERVER))
    assert [run["step_time"] for run in runs_of(place)["runs"]] == [0.1]
    assert [run["step_time"] for run in runs_of(place, environment=SERVER)["runs"]] == [0.3]


@pytest.mark.parametrize(("n_runs", "kept"), [(1, range(1)), (9, range(9)), (10, range(10)), (11, range(1, 11)), (13, range(3, 13))])
def test_the_history_keeps_ten_runs_and_the_first_one(place, n_runs, kept):
    for n in range(n_runs):
        update(place, record_of(profile(step_time=1.0 + n)), commit=f"commit{n}")
    history = runs_of(place)
    assert history["runs"] == [{"step_time": 1.0 + n, "commit": f"commit{n}"} for n in kept]
    assert history["anchor"] == {"step_time": 1.0, "commit": "commit0"}


@pytest.mark.parametrize("settled", [{"settled": False}, {}])
def test_times_of_steps_that_had_not_settled_are_not_recorded(place, settled):
    update(place, record_of(profile(retraces=0, step_time=value("step_time", 0.1, **settled), input_bound=0.2)))
    assert place.structure.exists()
    assert not place.timing.exists()


def test_a_test_without_a_profile_records_nothing(place):
    assert update(place, record_of()) == []
    assert not place.structure.parent.exists()


def test_no_temporary_file_is_left(place):
    update(place, record_of(profile(retraces=0, step_time=0.1)))
    assert {path.name for path in place.structure.parent.iterdir()} == {"test_model.json", "timing"}
    assert len(list(place.timing.iterdir())) == 1


WRITER = """
import sys
from pathlib import Path
from builders import profile, record_of
from pytest_tfperf.baseline.store import Place, record

who, rootdir, n_records = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
place = Place.of("test_model.py", rootdir, None)
print("ready", flush=True)
sys.stdin.readline()
for n in range(n_records):
    record(place, [record_of(profile(retraces=n, step_time=0.1), key=f"test_{who}_{n}")], "", False)
"""


def test_two_processes_that_update_one_file_at_once_lose_nothing(tmp_path):
    folders = (Path(__file__).parents[1], Path(__file__).parents[2])  # of builders, and of the package
    options = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}, "text": True}
    commands = [[sys.executable, "-c", WRITER, who, str(tmp_path), "12"] for who in ("left", "right")]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options) for command in commands]
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
    assert set(read_entries(place.structure)) == expected
    assert set(read_entries(place.timing_file(LAPTOP["machine"]))) == {place.timing_key(key) for key in expected}


def structure_file(**entry):
    whole = {"workload": {}, "program": {}, "platform": {}, "setting": {}} | entry
    return json.dumps({"format": 1, "tests": {"test_step": whole}})


def timing_file(**entry):
    whole = {"workload": {}, "anchor": {}, "runs": []} | entry
    return json.dumps({"format": 1, "machine": {}, "tests": {"test_model.py::test_step": whole}})


def test_the_builders_of_damaged_files_build_good_ones(tmp_path):
    for text in (structure_file(program={"retraces": 1}), timing_file(runs=[{"step_time": 0.1, "commit": "abc"}])):
        path = tmp_path / "some.json"
        path.write_text(text)
        assert len(read_entries(path)) == 1


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
    "truncated": (GOLDEN[:200], "not JSON"),
    "empty": ("", "not JSON"),
    "no JSON": ("step_time: 5\n", "not JSON"),
    "conflict marks": (CONFLICT, "has conflict marks of a merge; keep one side, or delete the file and run --tfperf-update"),
    "newer format": ('{"format": 2, "suites": []}', "format 2, this version reads up to 1; upgrade pytest-tfperf"),
    "a list": ("[]", "not a baseline file"),
    "a number": ("5", "not a baseline file"),
    "no format": ('{"tests": {}}', "not a baseline file"),
    "format as text": ('{"format": "1", "tests": {}}', "not a baseline file"),
    "no tests": ('{"format": 1}', "not a baseline file"),
    "tests as a list": ('{"format": 1, "tests": []}', "not a baseline file"),
    "an entry as a list": ('{"format": 1, "tests": {"test_step": []}}', "not a baseline file"),
    "an entry without sections": ('{"format": 1, "tests": {"test_step": {"workload": {}}}}', "not a baseline file"),
    "a workload as text": (structure_file(workload="batch 8"), "not a baseline file"),
    "a section as a list": (structure_file(program=[]), "not a baseline file"),
    "a metric as text": (structure_file(program={"retraces": "none"}), "not a baseline file"),
    "a metric as null": (structure_file(program={"retraces": None}), "not a baseline file"),
    "a metric as NaN": (structure_file(program={"retraces": float("nan")}), "not a baseline file"),
    "a platform as a number": (structure_file(platform={"cpu": 5}), "not a baseline file"),
    "a setting as a list": (structure_file(setting=[]), "not a baseline file"),
    "a history in place of structure": (
        '{"format": 1, "tests": {"test_step": {"workload": {}, "anchor": {}, "runs": []}}}',
        "not a baseline file",
    ),
    "runs as an object": (timing_file(runs={}), "not a baseline file"),
    "a run as a number": (timing_file(runs=[0.1]), "not a baseline file"),
    "a time as text": (timing_file(runs=[{"step_time": "fast"}]), "not a baseline file"),
    "no anchor": (timing_file(anchor=None), "not a baseline file"),
}
damaged = pytest.mark.parametrize(("text", "said"), DAMAGED.values(), ids=DAMAGED)


@damaged
@pytest.mark.parametrize("kind", ["structure", "timing"])
def test_a_damaged_file_is_named_refused_and_left_as_it_is(place, kind, text, said):
    path = place.structure if kind == "structure" else place.timing_file(LAPTOP["machine"])
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for attempt in (lambda: read_entries(path), lambda: update(place, record_of(profile(retraces=0, step_time=0.1)))):
        with pytest.raises(BaselineError) as refusal:
            attempt()
        assert str(refusal.value).startswith(f"baseline {path}: {said}")
        assert any(advice in str(refusal.value) for advice in ("restore it from git", "keep one side", "upgrade"))
    assert path.read_text() == text
    assert [file for file in place.structure.parent.rglob("*") if file.is_file()] == [path]


def test_bytes_that_are_no_text_are_refused(place):
    place.structure.parent.mkdir(parents=True)
    place.structure.write_bytes(b"\xff\xfe{}")
    with pytest.raises(BaselineError, match="cannot be read"):
        read_entries(place.structure)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "kept").write_text("a file where a folder should be")
    place = Place.of("test_model.py", tmp_path, Path("kept"))
    with pytest.raises(BaselineError, match=rf"baseline {place.structure}|baseline {place.timing}"):
        update(place, record_of(profile(retraces=0, step_time=0.1)))
    assert (tmp_path / "kept").read_text() == "a file where a folder should be"


def test_where_times_cannot_be_written_structure_is_not_either(place):
    place.structure.parent.mkdir(parents=True)
    place.timing.write_text("a file where a folder should be")
    with pytest.raises(BaselineError):
        update(place, record_of(profile(retraces=0, step_time=0.1)))
    assert not place.structure.exists()
