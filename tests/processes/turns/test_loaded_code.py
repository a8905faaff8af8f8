"""A project as it is installed: whose code the processes of a paired run load."""

import json
import subprocess
import sys

import pytest
from helpers.git_repository import write

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

CHILD = """
import json, site, sys
from pathlib import Path
from pytest_tfperf.turns.loaded_code import module_files, outside_tree
from pytest_tfperf.turns.worktree import Tree, mapped

root, path, side, listing, entries, folder = json.loads(sys.argv[1])
site.addsitedir(folder)
sys.path[:0] = entries
tree = Tree(Path(root), Path(path), "c", "main", False, Path(listing))
if side == "ref":
    sys.path[:] = [str(mapped(entry, tree)) for entry in sys.path]
import pkg.model
files = module_files(sys.modules)
print(json.dumps([pkg.model.WHOSE, outside_tree(files, tree, side, sys.path)]))
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


HOOK = """
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


@pytest.fixture
def loaded(tmp_path):
    """Whose code a side loads, and the reasons that it is told."""
    root, path = (tmp_path / name for name in ("project", "side"))
    listing = tmp_path / "tracked"
    listing.write_text("src/pkg/__init__.py\0src/pkg/model.py\0")
    for top, whose in ((root, "tree"), (path, "ref")):
        write(top, {"src/pkg/__init__.py": "", "src/pkg/model.py": f"WHOSE = {whose!r}"})

    def load(side, entries, folder):
        paths = [f"{root}/{entry}" for entry in entries]
        task = json.dumps([str(root), str(path), side, str(listing), paths, str(folder)])
        command = [sys.executable, "-c", CHILD, task]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        return json.loads(done.stdout or "[]") or pytest.fail(done.stderr)

    return load


COPY = "a copy of src/pkg/__init__.py"
# what is installed, pythonpath, and for either side whose code it loads and a reason against that
INSTALLED = [
    ("pth", [], ("tree", None), ("ref", None)),
    ("nothing", ["src"], ("tree", None), ("ref", None)),  # pytest's pythonpath
    ("finder", [], ("tree", None), ("tree", "from the working tree")),
    ("finder", ["src"], ("tree", None), ("ref", None)),  # as the reason advises
    ("copy", [], ("copy", COPY), ("copy", COPY)),
    ("copy", ["src"], ("tree", None), ("ref", None)),
]


def test_a_project_as_it_is_installed(loaded, tmp_path):
    for n, (kind, entries, *sides) in enumerate(INSTALLED):
        folder = site_packages(tmp_path / f"site-packages-{n}", tmp_path / "project", kind)
        for side, (whose, reason) in zip(("tree", "ref"), sides, strict=True):
            found, texts = loaded(side, entries, folder)
            assert found == whose, (kind, entries, side)
            assert [reason in text for text in texts] == ([True] if reason else [])


def test_an_import_hook_that_loads_the_files_of_its_version_is_no_reason(loaded, tmp_path):
    """As those of jaxtyping, beartype and typeguard do, which add checks to the functions of a project."""
    folder = tmp_path / "site-packages"
    write(folder, {"hooked.py": HOOK, "hooked.pth": "import hooked"})
    for side in ("tree", "ref"):
        assert loaded(side, ["src"], folder) == [side, []]
