"""Run files on disk."""

import json
from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, check, profile, record_of, run_of
from helpers.full_run import full_run
from helpers.processes import files_of_at_most

from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.run_file import ENDINGS, read_run, write_run
from pytest_tfperf.runs import Run
from pytest_tfperf.values import Column, Table

A_RUN = Run(
    created="2026-01-31T12:00:00+00:00",
    tests=(
        record_of(profile(step_time=0.1, retraces=0), checks=[check("PASS")], key="test_größe"),
    ),
)


def test_a_written_file_can_be_read_again(tmp_path):
    path = tmp_path / "new" / "folder" / "run.json"
    write_run(A_RUN, path)
    assert read_run(path) == A_RUN


def test_a_page_links_to_kept_files_from_where_it_lies(tmp_path):
    kept = replace(profile(), files={"trace": str(tmp_path / "kept" / "host.xplane.pb")})
    write_run(Run(created="", tests=(record_of(kept),)), tmp_path / "report" / "run.HTML")
    assert 'href="../kept/host.xplane.pb"' in (tmp_path / "report" / "run.HTML").read_text("utf-8")


def test_writing_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("something else, and longer" * 1000)
    write_run(A_RUN, path)
    assert read_run(path) == A_RUN
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_place_of_the_file_is_an_error_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "run.json"
    path.mkdir()
    with pytest.raises(TfperfError, match="cannot be written: Is a directory"):
        write_run(A_RUN, path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cell_of_another_type_than_comparisons_read_is_refused_by_its_place(tmp_path):
    columns = [Column("op", "op"), Column("self_s", "self", "s")]
    table = Table.of("ops", columns, [("MatMul", "fast")])
    damaged = replace(profile(), tables={"ops": table})
    write_run(Run(created="", tests=(record_of(damaged),)), tmp_path / "run.json")
    place = r"at `\$\.tests\[0\]\.profiles\[0\]\.tables\[ops\]\.columns\[self_s\]\[0\]`"
    with pytest.raises(
        TfperfError, match=f": damaged run file: Expected `float.*{place}; write it"
    ):
        read_run(tmp_path / "run.json")


def test_baseline_files_of_both_kinds_are_named_as_such(tmp_path):
    place = Place.of("test_model.py", tmp_path, None)
    record({place: [run_of(record_of(profile(retraces=0, step_time=0.1)))]}, only_new=False)
    for path in (place.structure, place.timing_file(LAPTOP["machine"])):
        with pytest.raises(TfperfError) as refusal:
            read_run(path)
        assert str(refusal.value) == (
            f"{path}: a baseline file, and not a run file; write one with pytest --tfperf-report"
        )


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("room", [0, 700])
def test_a_full_disk_leaves_the_earlier_file_unchanged(tmp_path, ending, room):
    path = tmp_path / f"run{ending}"
    path.write_text("as it was")
    many = replace(A_RUN, tests=A_RUN.tests * 20)
    with (
        files_of_at_most(room),
        pytest.raises(TfperfError, match=f"^report {path}: cannot be written: File too large$"),
    ):
        write_run(many, path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {path.name: "as it was"}


def test_a_field_with_the_end_of_a_line_in_its_name_is_refused_in_one_line(tmp_path):
    content = A_RUN.to_json()
    table = {"title": "", "columns": [], "rows": [[1]]}
    content["tests"][0]["profiles"][0]["tables"] = {"a\nb": table}
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(TfperfError, match=r"^[^\n]*tables\[a b\][^\n]*$"):
        read_run(tmp_path / "run.json")


def objects(content):
    """All objects of a run file that are no maps from names."""
    yield content
    for test in content["tests"]:
        yield from (test, *test["checks"], *(check["detail"] for check in test["checks"]))
        yield from (one for check in test["checks"] for one in check["detail"]["differences"])
        for made in test["profiles"]:
            yield from (made, *made["steps"], *made["advice"], *made["own"].values())
            yield from (*made["metrics"].values(), *made["tables"].values())
            yield from (column for one in made["tables"].values() for column in one["columns"])


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_later_version_may_add_fields_anywhere(tmp_path, ending):
    """As docs/reference/files.md promises."""
    content = full_run("x")
    for one in objects(content):
        one["unheard_of"] = 1
    (tmp_path / "run.json").write_text(json.dumps(content))
    write_run(read_run(tmp_path / "run.json"), tmp_path / f"out{ending}")
