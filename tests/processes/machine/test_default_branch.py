"""The default branch that messages name, as the remote of a real repository has it."""

import pytest
from helpers.git_repository import git

from pytest_tfperf.machine.description import default_branch

pytestmark = pytest.mark.usefixtures("processes")


def test_the_default_branch_is_that_of_the_remote_where_git_tells(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    git(there, "init", "-q", "-b", "trunk")
    git(there, "commit", "-q", "--allow-empty", "-m", "one")
    git(there, "branch", "feature")
    git(tmp_path, "clone", "-q", there, "clone")
    git(tmp_path, "clone", "-q", "-b", "feature", there, "other")
    assert default_branch(there) == ""
    assert default_branch(tmp_path / "clone") == "trunk"
    assert default_branch(tmp_path / "other") == "origin/trunk"
