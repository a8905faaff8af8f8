"""What a run leaves in the baselines: structure, times, and what is left out."""

import json
from unittest.mock import ANY

import pytest
from helpers.baselines import OTHER_WORKLOAD, runs_of, update, update_new
from helpers.builders import LAPTOP, SERVER, profile, record_of, value

from pytest_tfperf.baseline.store import Place, read_machine, read_structure, read_times
from pytest_tfperf.errors import BaselineError

GOLDEN = """\
{
  "format": 2,
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
      "workload": {"batch": 8, "inputs": ["float32[8, 4]"]}
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
      "workload": {"batch": 8, "inputs": ["float32[8, 4]"]}
    }
  }
}
"""


def test_a_structure_file_is_sorted_rounded_and_has_one_line_a_metric(place):
    update(
        place,
        record_of(
            profile(xla_coverage=1 / 3, peak_memory=123456789.0, flops=1234567890.5),
            key="test_größe",
        ),
        record_of(
            profile("eval", retraces=0, xla_clusters=1.0, step_time=0.1), key="TestA::test_b[8-f32]"
        ),
    )
    assert place.structure.read_text(encoding="utf-8") == GOLDEN


def test_a_written_file_can_be_read_again(place):
    assert read_structure(place.structure) == {}
    assert update(place, record_of(profile(retraces=2, xla_clusters=1, step_time=0.1))) == [
        ("test_step", "recorded")
    ]
    entry = read_structure(place.structure)["test_step"]
    assert entry["program"] == {"retraces": 2}
    assert entry["platform"] == {LAPTOP["platform"]: {"xla_clusters": 1}}
    assert entry["workload"] == {"inputs": ["float32[8, 4]"], "batch": 8}
    assert runs_of(place)["runs"] == [{"step_time": 0.1, "commit": "abc123", "created": ANY}]
    assert read_machine(place.timing_file(LAPTOP["machine"])) == LAPTOP["machine"]


def test_test_files_of_one_folder_share_a_timing_file_and_keep_apart_in_it(tmp_path):
    for name in ("test_one", "test_two"):
        update(
            Place.of(f"{name}.py", tmp_path, None),
            record_of(profile(step_time=0.1), file=f"{name}.py"),
        )
    [shared] = (tmp_path / "__tfperf__" / "timing").iterdir()
    assert set(read_times(shared)) == {"test_one.py::test_step", "test_two.py::test_step"}


def test_an_update_with_the_same_values_leaves_the_structure_file_byte_for_byte(place):
    measured = record_of(profile(retraces=0, xla_coverage=1 / 3, step_time=0.1))
    update(place, measured)
    before, stamp = place.structure.read_bytes(), place.structure.stat().st_mtime_ns
    assert update(place, measured, commit="def456") == []
    assert (place.structure.read_bytes(), place.structure.stat().st_mtime_ns) == (before, stamp)


def test_an_update_replaces_what_changed_and_leaves_other_tests_alone(place):
    update(place, record_of(profile(retraces=0)), record_of(profile(retraces=5), key="test_other"))
    assert update(place, record_of(profile(retraces=1)), commit="def456") == [
        ("test_step", "updated: retraces 0 → 1")
    ]
    entries = read_structure(place.structure)
    assert (entries["test_step"]["program"], entries["test_step"]["setting"]["commit"]) == (
        {"retraces": 1},
        "def456",
    )
    assert (entries["test_other"]["program"], entries["test_other"]["setting"]["commit"]) == (
        {"retraces": 5},
        "abc123",
    )


def test_an_update_on_another_platform_adds_a_section(place):
    update(place, record_of(profile(xla_clusters=1)))
    update(place, record_of(profile(xla_clusters=2), environment=SERVER))
    stored = read_structure(place.structure)["test_step"]["platform"]
    assert stored == {
        LAPTOP["platform"]: {"xla_clusters": 1},
        SERVER["platform"]: {"xla_clusters": 2},
    }


def test_a_changed_workload_replaces_the_entry_and_begins_its_history_anew(place):
    update(place, record_of(profile(xla_clusters=1, step_time=0.1)))
    update(place, record_of(profile(xla_clusters=1), environment=SERVER))
    changed = record_of(profile(workload=OTHER_WORKLOAD, xla_clusters=3, step_time=0.2))
    assert update(place, changed) == [
        ("test_step", "replaced: the workload was batch 8, inputs ['float32[8, 4]']")
    ]
    entry = read_structure(place.structure)["test_step"]
    assert (entry["workload"], entry["platform"]) == (
        OTHER_WORKLOAD,
        {LAPTOP["platform"]: {"xla_clusters": 3}},
    )
    history = runs_of(place)
    assert (history["workload"], history["anchor"]["step_time"], len(history["runs"])) == (
        OTHER_WORKLOAD,
        0.2,
        1,
    )


def test_update_new_adds_a_test_and_leaves_the_others(place):
    update(place, record_of(profile(retraces=0)))
    assert update_new(
        place, record_of(profile(retraces=9)), record_of(profile(retraces=9), key="test_new")
    ) == [("test_new", "recorded")]
    entries = read_structure(place.structure)
    assert (entries["test_step"]["program"], entries["test_new"]["program"]) == (
        {"retraces": 0},
        {"retraces": 9},
    )


def test_update_new_adds_a_platform_and_leaves_what_holds_on_every_machine(place):
    update(place, record_of(profile(retraces=0, xla_clusters=1)))
    changes = update_new(place, record_of(profile(retraces=9, xla_clusters=2), environment=SERVER))
    assert changes == [("test_step", f"updated: platform {SERVER['platform']} added")]
    entry = read_structure(place.structure)["test_step"]
    assert entry["program"] == {"retraces": 0}
    assert entry["platform"] == {
        LAPTOP["platform"]: {"xla_clusters": 1},
        SERVER["platform"]: {"xla_clusters": 2},
    }


def test_update_new_adds_metrics_that_are_new_and_leaves_the_others(place):
    update(place, record_of(profile(retraces=0, xla_clusters=1)))
    update_new(place, record_of(profile(retraces=9, eager_ops=2, xla_clusters=9, fusions=4)))
    entry = read_structure(place.structure)["test_step"]
    assert (entry["program"], entry["platform"][LAPTOP["platform"]]) == (
        {"retraces": 0, "eager_ops": 2},
        {"xla_clusters": 1, "fusions": 4},
    )


def test_update_new_does_not_add_a_metric_that_the_entry_has_for_another_scope(place):
    of_platform = profile(flops=value("flops", 2.0, of_platform=True))
    for one, other in [(profile(flops=1), of_platform), (of_platform, profile(flops=1))]:
        update(place, record_of(one))
        before = place.structure.read_bytes()
        update_new(place, record_of(other))
        assert place.structure.read_bytes() == before


def test_update_new_leaves_an_entry_for_another_workload(place):
    update(place, record_of(profile(retraces=0, step_time=0.1)))
    files = [place.structure, place.timing_file(LAPTOP["machine"])]
    before = [file.read_bytes() for file in files]
    assert (
        update_new(place, record_of(profile(workload=OTHER_WORKLOAD, retraces=9, step_time=0.9)))
        == []
    )
    assert [file.read_bytes() for file in files] == before


def test_update_new_adds_a_machine_class_and_no_second_run(place):
    update(place, record_of(profile(step_time=0.1)))
    update_new(place, record_of(profile(step_time=0.2)))
    update_new(place, record_of(profile(step_time=0.3), environment=SERVER))
    assert [run["step_time"] for run in runs_of(place)["runs"]] == [0.1]
    assert [run["step_time"] for run in runs_of(place, environment=SERVER)["runs"]] == [0.3]


@pytest.mark.parametrize("settled", [{"settled": False}, {}])
def test_times_of_steps_that_had_not_settled_are_not_recorded(place, settled):
    update(
        place,
        record_of(
            profile(retraces=0, step_time=value("step_time", 0.1, **settled), input_bound=0.2)
        ),
    )
    assert place.structure.exists()
    assert not place.timing.exists()


def test_a_test_without_a_profile_records_nothing(place):
    assert update(place, record_of()) == []
    assert not place.structure.parent.exists()


def test_no_temporary_file_is_left(place):
    update(place, record_of(profile(retraces=0, step_time=0.1)))
    files = [path for path in place.structure.parent.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == [
        ".gitattributes",
        place.timing_file(LAPTOP["machine"]).name,
        "test_model.json",
        "test_model.py.json",
    ]


def test_a_number_that_can_be_no_step_time_is_not_recorded(new_place):
    for step_time, recorded in [(1e-9, True), (0.9e-9, False), (1e7, True), (1.1e7, False)]:
        place = new_place()
        update(place, record_of(profile(retraces=0, step_time=step_time)))
        assert place.timing.exists() is recorded, step_time


def test_names_that_are_no_text_are_read_as_they_were_recorded(place):
    """Names of files that are no UTF-8 have halves of surrogate pairs in Python."""
    key = "test_x[\udcff]"
    update(place, record_of(profile(retraces=0, step_time=0.1), key=key))
    assert list(read_structure(place.structure)) == [key]
    assert update(place, record_of(profile(retraces=0, step_time=0.1), key=key)) == []


@pytest.mark.parametrize("kind", ["structure", "times"])
def test_a_file_of_the_other_kind_is_refused_and_stays(place, kind):
    update(place, record_of(profile(step_time=0.01)))
    [timing] = place.timing.iterdir()
    path = place.structure if kind == "structure" else timing
    content = {"format": 1, "tests": {}} | (
        {"machine": LAPTOP["machine"]} if kind == "structure" else {}
    )
    path.write_text(json.dumps(content))
    with pytest.raises(
        BaselineError, match=r"^baseline .*: not a file of the st.*; restore it from git"
    ):
        update(place, record_of(profile(step_time=0.01)))
    assert json.loads(path.read_text()) == content
