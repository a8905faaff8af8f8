"""The run that pytest keeps in its cache, and where it is looked for."""

import os

import pytest
from helpers.builders import profile, record_of, run_of

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.run_file import find_last_run, keep_last_run, read_run

RUN = run_of(record_of(profile(step_time=0.01)))


def test_the_last_run_is_found_from_folders_below(tmp_path):
    cache = tmp_path / ".pytest_cache" / "d" / "tfperf"
    keep_last_run(RUN, cache)
    inner = tmp_path / "tests" / "models"
    inner.mkdir(parents=True)
    found = find_last_run(inner)
    assert found == cache / "last_run.json"
    assert read_run(found) == RUN
    assert [path.name for path in cache.iterdir()] == ["last_run.json"]


def test_the_nearest_one_is_taken(tmp_path):
    for folder in (tmp_path, tmp_path / "project"):
        keep_last_run(RUN, folder / ".pytest_cache" / "d" / "tfperf")
    assert find_last_run(tmp_path / "project").is_relative_to(tmp_path / "project")


def test_that_of_the_folder_of_temporary_files_is_not_taken_for_a_project_in_it(tmp_path):
    """It is of the project only for who works in that folder itself."""
    cache = tmp_path / ".pytest_cache/d/tfperf"
    keep_last_run(RUN, cache)
    (project := tmp_path / "project").mkdir()
    assert find_last_run(project).is_relative_to(cache)
    tmp_path.chmod(0o1777)
    assert find_last_run(tmp_path).is_relative_to(cache)
    with pytest.raises(TfperfError, match="no results of a pytest run"):
        find_last_run(project)


def test_that_of_a_folder_above_the_repository_is_not_taken(tmp_path):
    keep_last_run(RUN, tmp_path / ".pytest_cache/d/tfperf")
    inner = tmp_path / "project/tests"
    inner.mkdir(parents=True)
    assert find_last_run(inner)
    (tmp_path / "project/.git").mkdir()
    with pytest.raises(TfperfError, match="no results of a pytest run"):
        find_last_run(inner)
    keep_last_run(RUN, tmp_path / "project/.pytest_cache/d/tfperf")
    assert find_last_run(inner).is_relative_to(tmp_path / "project")


def test_where_there_is_none_one_sentence_says_so(tmp_path):
    with pytest.raises(
        TfperfError, match=r"^no results of a pytest run: no \.pytest_cache/d/"
    ) as e:
        find_last_run(tmp_path)
    assert str(tmp_path) in str(e.value)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can chown")
def test_a_run_that_another_user_put_above_is_not_shown(tmp_path):
    """As in the folder of all users' temporary files."""
    folder = tmp_path / ".pytest_cache/d/tfperf"
    keep_last_run(RUN, folder)
    project = tmp_path / "project"
    project.mkdir()
    os.chown(folder / "last_run.json", 34567, 34567)
    with pytest.raises(TfperfError, match="no results of a pytest run"):
        find_last_run(project)
    os.chown(project, 34567, 34567)
    assert find_last_run(project) == folder / "last_run.json", "that of the project's owner"
