"""From where modules are loaded, and whether two versions would run the same code."""

import importlib.util
import json
import sys
import types

import pytest
from helpers.git_repository import write

from pytest_tfperf.turns.loaded_code import (
    copies,
    module_files,
    of_another_environment,
    outside_tree,
)
from pytest_tfperf.turns.worktree import Tree, tree_alone

TRACKED = (
    "src/pkg/__init__.py",
    "src/pkg/model.py",
    "src/pkg/layers/dense.py",
    "tests/conftest.py",
    "flat.py",
    "test/__init__.py",
    "json.py",
    "lib/new/a.py",
)
SITE = "/venv/lib/python3.11/site-packages"


@pytest.fixture
def tree(tmp_path):
    for name in ("project", "side"):
        (tmp_path / name).mkdir()
    (tmp_path / "tracked").write_text("".join(f"{path}\0" for path in TRACKED))
    root, side = ((tmp_path / name).resolve() for name in ("project", "side"))
    return Tree(root, side, "c" * 40, "main", False, tmp_path / "tracked")


def reasons(tree, side, files, path=()):
    return outside_tree(
        {name: file.format(root=tree.root, side=tree.path) for name, file in files.items()},
        tree,
        side,
        path,
    )


# plain data


def test_a_side_that_runs_its_own_code_has_no_reason(tree):
    for side, top in (("tree", "{root}"), ("ref", "{side}")):
        files = {
            "pkg": top + "/src/pkg/__init__.py",
            "pkg.model": top + "/src/pkg/model.py",
            "conftest": top + "/tests/conftest.py",
            "flat": top + "/flat.py",
            "test": "/usr/lib/python3.11/test/__init__.py",  # of Python itself, as the next
            "json": "/usr/lib/python3.11/json/__init__.py",
            "numpy": SITE + "/numpy/__init__.py",
            "vendored": "{root}/.venv/lib/python3.11/site-packages/vendored.py",
            "__main__": SITE + "/pytest/__main__.py",
        }
        assert reasons(tree, side, files) == [], side


def test_the_working_trees_code_on_the_refs_side(tree):
    files = {
        "pkg.model": "{root}/src/pkg/model.py",
        "pkg": "{root}/src/pkg/__init__.py",
        "pkg.layers.dense": "{root}/src/pkg/layers/dense.py",
    }
    (text,) = reasons(tree, "ref", files)
    assert text == (
        f"in the process of the ref's files pkg (and 2 more of its modules) is loaded from the working tree ({tree.root}/src/pkg/__init__.py): "
        "both versions would run the same code; set pytest's pythonpath = src, or pip install -e . --config-settings editable_mode=compat"
    )
    assert reasons(tree, "tree", files) == []


def test_the_refs_code_on_the_working_trees_side(tree):
    (text,) = reasons(tree, "tree", {"flat": "{side}/flat.py"})
    assert text.startswith(
        f"in the process of the working tree flat is loaded from the ref's files ({tree.path}/flat.py)"
    )
    assert "pythonpath = ., or" in text


def test_a_module_that_is_not_tracked_yet_is_the_working_trees_where_its_folder_is(tree):
    assert len(reasons(tree, "ref", {"pkg.new": "{root}/src/pkg/new.py"})) == 1
    assert len(reasons(tree, "ref", {"new.a": "{root}/lib/new/a.py"})) == 1
    assert reasons(tree, "ref", {"scratch": "{root}/scratch/scratch.py"}) == []


def test_each_top_level_module_has_its_own_reason(tree):
    texts = reasons(
        tree,
        "ref",
        {
            "flat": "{root}/flat.py",
            "pkg.model": "{root}/src/pkg/model.py",
            "conftest": "{root}/tests/conftest.py",
        },
    )
    assert [text.partition(" is loaded")[0].rpartition(" ")[2] for text in texts] == [
        "conftest",
        "flat",
        "pkg.model",
    ]
    assert ["pythonpath = tests," in text for text in texts] == [True, False, False]


def test_an_installed_copy_on_either_side(tree):
    for site in (SITE, "{root}/.venv/lib/python3.11/site-packages", "{root}/build/lib"):
        files = {
            "pkg": site + "/pkg/__init__.py",
            "pkg.model": site + "/pkg/model.py",
            "pkg.gone": site + "/pkg/gone.py",
        }
        for side in ("tree", "ref"):
            (text,) = reasons(tree, side, files)
            assert text == (
                f"pkg (and 1 more of its modules) is loaded from {site.format(root=tree.root)}/pkg/__init__.py, a copy of src/pkg/__init__.py: both versions "
                "would run the copy; uninstall it and set pytest's pythonpath = src, or pip install -e . --config-settings editable_mode=compat"
            )


def test_where_the_source_of_a_copy_may_be(tree):
    for name, path, found in (
        ("flat", [], True),  # at the top level
        ("pkg.layers.dense", [], True),  # in src
        ("new.a", [], False),
        ("new.a", ["{root}/lib"], True),  # on a path entry of the working tree
        ("new.a", ["{side}/lib"], True),  # of the ref
        ("new.a", ["/other/lib", "", "lib"], False),
        ("conftest", ["{root}/tests"], True),
        ("src.pkg", ["{root}"], True),
    ):
        entries = [entry.format(root=tree.root, side=tree.path) for entry in path]
        copied = {name: f"{SITE}/copied.py"}
        assert len(reasons(tree, "tree", copied, entries)) == found, (name, path)


def test_built_code_that_the_refs_files_lack(tree):
    files = {
        "pkg._fast": "{root}/src/pkg/_fast.cpython-311-x86_64-linux-gnu.so",
        "numpy._core": SITE + "/numpy/_core.so",
    }
    (text,) = reasons(tree, "tree", files)
    assert text.startswith("pkg._fast is compiled code that git does not track (")
    assert "--tfperf-baseline" in text


def test_links_are_followed(tree):
    """As an editable install of setuptools in its strict mode has them."""
    write(tree.root, {"src/pkg/model.py": ""})
    link = tree.root / "build/__editable__.pkg/pkg/model.py"
    link.parent.mkdir(parents=True)
    link.symlink_to(tree.root / "src/pkg/model.py")
    assert "the working tree" in outside_tree({"pkg.model": str(link)}, tree, "ref")[0]
    assert outside_tree({"pkg.model": str(link)}, tree, "tree") == []


def test_nothing_loaded_is_no_reason(tree):
    assert outside_tree({}, tree, "ref") == []


# what a process has loaded


def test_files_of_modules_that_are_there():
    files = module_files(sys.modules)
    assert (
        files["pytest_tfperf.turns.loaded_code"]
        == importlib.util.find_spec("pytest_tfperf.turns.loaded_code").origin
    )
    assert "sys" not in files
    assert json.loads(json.dumps(files)) == files


def test_a_module_that_waits_for_its_use_is_not_loaded():
    class Waiting(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"{name} was asked for")

    waiting = Waiting("waiting")
    object.__getattribute__(waiting, "__dict__")["__file__"] = "/x/waiting.py"
    odd = {
        "waiting": waiting,
        "none": None,
        "object": object(),
        "without": types.ModuleType("without"),
        "number": types.ModuleType("number"),
    }
    odd["number"].__file__ = 3
    assert module_files(odd) == {"waiting": "/x/waiting.py"}


# two Pythons

OWN = ("/usr/lib/python3.11", "/ours/lib/python3.11/site-packages")
OTHERS = ("/usr/lib/python3.11", "/other/lib/python3.11/site-packages", "/ours")


def test_code_of_the_other_environment_is_named():
    for file, is_foreign in (
        ("/usr/lib/python3.11/site-packages/pkg.py", False),  # in both
        ("/ours/lib/python3.11/site-packages/pkg.py", False),  # the nearest folder is its own
        ("/ours/pkg.py", True),
        ("/other/lib/python3.11/site-packages/deep/in/pkg.py", True),
        ("/project/pkg.py", False),
    ):
        found = of_another_environment({"pkg": file}, OWN, OTHERS, "/ours/bin/python")
        said = (
            f"with /ours/bin/python pkg is loaded from the environment of the other Python ({file})"
        )
        assert [text.startswith(said) for text in found] == [True] * is_foreign, file


def test_a_module_of_the_tree_that_another_copy_hides_is_named(tmp_path):
    write(tmp_path, {"src/pkg/__init__.py": "", "src/pkg/model.py": "", "lib/plain.py": ""})
    tree = tree_alone(tmp_path, "keras 3.5")
    files = {"pkg": f"{SITE}/pkg/__init__.py", "pkg.model": f"{SITE}/pkg/model.py"}
    own = {"pkg": f"{tmp_path}/src/pkg/__init__.py", "plain": f"{SITE}/plain.py"}
    [found] = copies({**files, "other": f"{SITE}/other.py"}, tree, (), "/other/bin/python")
    assert found.startswith(
        "with /other/bin/python pkg (and 1 more of its modules) is loaded from "
        f"{SITE}/pkg/__init__.py, a copy of src/pkg/__init__.py, which may be another version"
    )
    assert copies(own, tree, (), "/other/bin/python") == []  # lib is in nobody's sys.path
    assert "lib/plain.py" in copies(own, tree, (tmp_path / "lib",), "/other/bin/python")[0]


def test_what_only_says_that_it_is_a_module_has_no_attributes():
    class Library:
        """A library of cffi is such an object."""

        __slots__ = ()
        __class__ = types.ModuleType

    assert isinstance(Library(), types.ModuleType)
    assert module_files({"library": Library()}) == {}
