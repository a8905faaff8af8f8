import importlib.util
import json
import subprocess
import sys
import types

import pytest
from helpers.git_repository import write

from pytest_tfperf.paired.loaded_code import (
    copies,
    import_hooks,
    module_files,
    module_loaders,
    of_another_environment,
    outside_tree,
)
from pytest_tfperf.paired.worktree import Tree, tree_alone

TRACKED = frozenset(
    {
        "src/pkg/__init__.py",
        "src/pkg/model.py",
        "src/pkg/layers/dense.py",
        "tests/conftest.py",
        "flat.py",
        "test/__init__.py",
        "json.py",
    }
)
SITE = "/venv/lib/python3.11/site-packages"


@pytest.fixture
def tree(tmp_path):
    for name in ("project", "side"):
        (tmp_path / name).mkdir()
    root, side = (tmp_path / name for name in ("project", "side"))
    return Tree(
        root.resolve(), side.resolve(), "c" * 40, "main", False, TRACKED, TRACKED | {"lib/new/a.py"}
    )


def reasons(tree, side, files, path=()):
    return outside_tree(
        {name: file.format(root=tree.root, side=tree.path) for name, file in files.items()},
        tree,
        side,
        path,
    )


# plain data


@pytest.mark.parametrize(("side", "top"), [("tree", "{root}"), ("ref", "{side}")])
def test_a_side_that_runs_its_own_code_has_no_reason(tree, side, top):
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
    assert reasons(tree, side, files) == []


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


@pytest.mark.parametrize("side", ["tree", "ref"])
@pytest.mark.parametrize(
    "site", [SITE, "{root}/.venv/lib/python3.11/site-packages", "{root}/build/lib"]
)
def test_an_installed_copy_on_either_side(tree, side, site):
    (text,) = reasons(
        tree,
        side,
        {
            "pkg": site + "/pkg/__init__.py",
            "pkg.model": site + "/pkg/model.py",
            "pkg.gone": site + "/pkg/gone.py",
        },
    )
    assert text == (
        f"pkg (and 1 more of its modules) is loaded from {site.format(root=tree.root)}/pkg/__init__.py, a copy of src/pkg/__init__.py: both versions "
        "would run the copy; uninstall it and set pytest's pythonpath = src, or pip install -e . --config-settings editable_mode=compat"
    )


@pytest.mark.parametrize(
    ("name", "path", "found"),
    [
        ("flat", [], True),  # at the top level
        ("pkg.layers.dense", [], True),  # in src
        ("new.a", [], False),
        ("new.a", ["{root}/lib"], True),  # on a path entry of the working tree
        ("new.a", ["{side}/lib"], True),  # of the ref
        ("new.a", ["/other/lib", "", "lib"], False),
        ("conftest", ["{root}/tests"], True),
        ("src.pkg", ["{root}"], True),
    ],
)
def test_where_the_source_of_a_copy_may_be(tree, name, path, found):
    path = [entry.format(root=tree.root, side=tree.path) for entry in path]
    assert len(reasons(tree, "tree", {name: f"{SITE}/copied.py"}, path)) == found


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
    assert outside_tree({}, tree, "ref") == import_hooks({}, {}, tree) == []


@pytest.mark.parametrize(
    ("loader", "foreign"),
    [
        ("_frozen_importlib_external.SourceFileLoader", False),
        ("_frozen_importlib.BuiltinImporter", False),
        ("zipimport.zipimporter", False),
        ("importlib.util._LazyLoader", False),
        ("_pytest.assertion.rewrite.AssertionRewritingHook", False),
        ("setuptools.extern.VendorImporter", False),
        ("pkg_resources.extern.VendorImporter", False),
        ("six._SixMetaPathImporter", False),
        ("pyximport.pyximport.PyxImportLoader", True),
        ("sixth.Loader", True),
        ("hook.Loader", True),
    ],
)
def test_import_hooks_that_load_the_project(tree, loader, foreign):
    files = {
        "pkg": f"{tree.path}/src/pkg/__init__.py",
        "pkg.model": f"{tree.path}/src/pkg/model.py",
        "numpy": f"{SITE}/numpy/__init__.py",
    }
    texts = import_hooks(files, dict.fromkeys([*files, "no.file"], loader), tree)
    assert [
        f"pkg (and 1 more of its modules) ({files['pkg']}) came through the import hook {loader}, "
        in text
        for text in texts
    ] == [True] * foreign
    assert import_hooks(files, {"numpy": loader, "no.file": loader}, tree) == []


# what a process has loaded


def test_files_and_loaders_of_modules_that_are_there():
    files, loaders = module_files(sys.modules), module_loaders(sys.modules)
    assert (
        files["pytest_tfperf.paired.loaded_code"]
        == importlib.util.find_spec("pytest_tfperf.paired.loaded_code").origin
    )
    assert loaders["json.decoder"] == "_frozen_importlib_external.SourceFileLoader"
    assert "sys" not in files
    assert loaders["sys"] == "_frozen_importlib.BuiltinImporter"
    assert loaders[__name__] == "_pytest.assertion.rewrite.AssertionRewritingHook"
    assert json.loads(json.dumps([files, loaders])) == [files, loaders]


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
    assert module_loaders(odd) == {}


# two Pythons

OWN = ("/usr/lib/python3.11", "/ours/lib/python3.11/site-packages")
OTHERS = ("/usr/lib/python3.11", "/other/lib/python3.11/site-packages", "/ours")


@pytest.mark.parametrize(
    ("file", "is_foreign"),
    [
        ("/usr/lib/python3.11/site-packages/pkg.py", False),  # in both
        ("/ours/lib/python3.11/site-packages/pkg.py", False),  # the nearest folder is its own
        ("/ours/pkg.py", True),
        ("/other/lib/python3.11/site-packages/deep/in/pkg.py", True),
        ("/project/pkg.py", False),
    ],
)
def test_code_of_the_other_environment_is_named(file, is_foreign):
    found = of_another_environment({"pkg": file}, OWN, OTHERS, "/ours/bin/python")
    assert bool(found) == is_foreign
    if is_foreign:
        assert found[0].startswith(
            f"with /ours/bin/python pkg is loaded from the environment of the other Python ({file})"
        )


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


# a project as it is installed

CHILD = """
import json, site, sys
from pathlib import Path
from pytest_tfperf.paired.loaded_code import import_hooks, module_files, module_loaders, outside_tree
from pytest_tfperf.paired.worktree import Tree, mapped

root, path, side, tracked, entries, folder = json.loads(sys.argv[1])
site.addsitedir(folder)
sys.path[:0] = entries
tree = Tree(Path(root), Path(path), "c", "main", False, frozenset(tracked), frozenset(tracked))
if side == "ref":
    sys.path[:] = [str(mapped(entry, tree)) for entry in sys.path]
import pkg.model
files = module_files(sys.modules)
print(json.dumps([pkg.model.WHOSE, outside_tree(files, tree, side, sys.path), import_hooks(files, module_loaders(sys.modules), tree)]))
"""
FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

MAPPING = {mapping!r}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for pkg, pkg_path in MAPPING.items():
            if fullname == pkg or fullname.startswith(f"{{pkg}}."):
                place = Path(pkg_path, *fullname.replace(pkg, "", 1).strip(".").split("."))
                for candidate in (place / "__init__.py", place.with_suffix(".py")):
                    if candidate.exists():
                        return spec_from_file_location(fullname, candidate)
        return None


def install():
    sys.meta_path.append(_EditableFinder)
"""


def site_packages(folder, root, kind):
    """What an installation leaves in site-packages: a .pth file (compat), a finder (setuptools' default for src), or a copy."""
    folder.mkdir()
    if kind == "pth":
        write(folder, {"__editable__.pkg-1.0.pth": f"{root}/src\n"})
    elif kind == "finder":
        write(
            folder,
            {"__editable___pkg_1_0_finder.py": FINDER.format(mapping={"pkg": f"{root}/src/pkg"})},
        )
        write(
            folder,
            {
                "__editable__.pkg-1.0.pth": "import __editable___pkg_1_0_finder; __editable___pkg_1_0_finder.install()"
            },
        )
    elif kind == "copy":
        write(folder, {"pkg/__init__.py": "", "pkg/model.py": "WHOSE = 'copy'"})
    return folder


@pytest.mark.parametrize(
    ("kind", "entries", "tree_side", "ref_side"),
    [
        ("pth", [], ("tree", None), ("ref", None)),
        ("nothing", ["src"], ("tree", None), ("ref", None)),  # pytest's pythonpath
        ("finder", [], ("tree", None), ("tree", "from the working tree")),
        ("finder", ["src"], ("tree", None), ("ref", None)),  # as the reason advises
        (
            "copy",
            [],
            ("copy", "a copy of src/pkg/__init__.py"),
            ("copy", "a copy of src/pkg/__init__.py"),
        ),
        ("copy", ["src"], ("tree", None), ("ref", None)),
    ],
)
def test_a_project_as_it_is_installed(tree, tmp_path, kind, entries, tree_side, ref_side):
    for top, whose in ((tree.root, "tree"), (tree.path, "ref")):
        write(top, {"src/pkg/__init__.py": "", "src/pkg/model.py": f"WHOSE = {whose!r}"})
    folder = site_packages(tmp_path / "site-packages", tree.root, kind)
    for side, (whose, reason) in (("tree", tree_side), ("ref", ref_side)):
        task = [
            str(tree.root),
            str(tree.path),
            side,
            sorted(TRACKED),
            [f"{tree.root}/{entry}" for entry in entries],
            str(folder),
        ]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(task)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        found, texts, hooks = json.loads(done.stdout or "[]") or pytest.fail(done.stderr)
        assert (found, hooks) == (whose, [])
        assert [reason in text for text in texts] == ([True] if reason else [])


def test_a_loader_of_its_own_is_seen(tree, tmp_path):
    write(tree.path, {"src/pkg/__init__.py": "", "src/pkg/model.py": "WHOSE = 'ref'"})
    folder = tmp_path / "site-packages"
    hook = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader
class Loader(SourceFileLoader): pass
class Finder:
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name.startswith("pkg") else None
        if spec: spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""
    write(folder, {"hooked.py": hook, "hooked.pth": "import hooked"})
    task = [
        str(tree.root),
        str(tree.path),
        "ref",
        sorted(TRACKED),
        [f"{tree.root}/src"],
        str(folder),
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(task)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    whose, texts, hooks = json.loads(done.stdout or "[]") or pytest.fail(done.stderr)
    assert (whose, texts) == ("ref", [])
    assert (
        f"pkg (and 1 more of its modules) ({tree.path}/src/pkg/__init__.py) came through the import hook hooked.Loader"
        in hooks[0]
    )


def test_what_only_says_that_it_is_a_module_has_no_attributes():
    class Library:
        """A library of cffi is such an object."""

        __slots__ = ()
        __class__ = types.ModuleType

    assert isinstance(Library(), types.ModuleType)
    assert module_files({"library": Library()}) == {}
