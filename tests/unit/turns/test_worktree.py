"""Which path of the working tree is which of a ref's files."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.git_repository import write

from pytest_tfperf.turns.worktree import Tree, mapped, mapped_argument, place


@pytest.fixture
def tree(tmp_path):
    """By hand: `old.py` is on the ref alone, `new/` in the working tree alone; .venv and data are not tracked."""
    for name in ("project", "side", "project/.venv"):
        (tmp_path / name).mkdir()
    tracked = ["setup.py", "src/pkg/a.py", "src/pkg/old.py", "tests/test_a.py", "new/b.py", "link"]
    (tmp_path / "tracked").write_text("".join(f"{path}\0" for path in tracked))
    root, side = ((tmp_path / name).resolve() for name in ("project", "side"))
    return Tree(root, side, "c" * 40, "main", False, tmp_path / "tracked")


def test_what_git_tracks_on_either_side_is_mapped(tree):
    for path in (
        "",
        "src",
        "src/pkg",
        "src/pkg/a.py",
        "src/pkg/old.py",
        "new",
        "new/b.py",
        "tests/test_untracked.py",
        "link",
        "x.py",
    ):
        assert mapped(tree.root / path, tree) == tree.path / path, path
        assert mapped(f"{tree.root}/{path}", tree) == tree.path / path, path


def test_what_git_does_not_track_is_shared(tree):
    for path in (
        ".venv",
        ".venv/lib/python3.11/site-packages",
        "data",
        "data/train.py",
        "src/pkg/data.bin",
        "run.log",
    ):
        assert mapped(tree.root / path, tree) == tree.root / path, path


def test_other_paths_are_left_as_they_are(tree):
    for path in (
        "/usr/lib",
        f"{tree.root}x/src",
        tree.root.parent,
        tree.path / "src",
        "src/pkg",
        "",
        "zip.path_hook",
    ):
        assert mapped(path, tree) == Path(path)


def test_a_folder_of_the_refs_files_within_the_working_tree(tree):
    within = replace(tree, path=tree.root / "src/tmp/side")
    assert mapped(within.path / "src", within) == within.path / "src"
    assert mapped(within.root / "src", within) == within.path / "src"
    assert place(within.path / "src/pkg/a.py", within)[0] == "ref"


def test_links_that_lead_to_the_top_level_or_into_it(tree, tmp_path):
    write(tree.root, {"src/pkg/a.py": ""})
    (tmp_path / "home").symlink_to(tree.root.parent)
    (tmp_path / "src").symlink_to(tree.root / "src")
    (tree.root / "link").symlink_to("/usr")
    assert mapped(tmp_path / "home/project/src", tree) == tree.path / "src"
    assert mapped(tmp_path / "src", tree) == tree.path / "src"
    assert mapped(tree.root / "link", tree) == tree.path / "link"  # tracked as a link
    assert mapped(tree.root / "tests/../src/pkg", tree) == tree.path / "src/pkg"
    assert place(tmp_path / "src/pkg/a.py", tree)[0] == "tree"


def test_an_argument_is_mapped_by_its_path(tree):
    for argument in (
        "{}/tests",
        "{}/tests/test_a.py::test_x[/a::b]",
        "--opt={}/src",
        "pythonpath={}/src",
        "-c{}/setup.py",
        "--rootdir={}",
        "{}",
    ):
        found = mapped_argument(argument.format(tree.root), tree)
        assert found == argument.format(tree.path), argument


def test_other_arguments_are_left_as_they_are(tree):
    for argument in (
        "-q",
        "-k",
        "a/b",
        "tests/test_a.py",
        "--opt=x",
        "--opt=/usr",
        "-x={}",
        "{}x",
        "--data={}/data",
        "a b={}//x y",
        "",
        "--",
    ):
        given = argument.format(tree.root / "data")
        assert mapped_argument(given, tree) == given, argument


def test_whose_a_file_is(tree):
    for file, whose in (
        ("{root}/src/pkg/a.py", "tree"),
        ("{root}/src/pkg/untracked.py", "tree"),
        ("{root}/x.py", "tree"),
        ("{root}/.venv/lib/pkg/a.py", "elsewhere"),
        ("{root}/data/a.py", "elsewhere"),
        ("{side}/src/pkg/a.py", "ref"),
        ("{side}/src/pkg/__pycache__/a.pyc", "ref"),
        ("{root}x/src/pkg/a.py", "elsewhere"),
        ("/usr/lib/pkg/a.py", "elsewhere"),
    ):
        found, relative = place(file.format(root=tree.root, side=tree.path), tree)
        assert found == whose, file
        assert (relative is None) == (whose == "elsewhere"), file
