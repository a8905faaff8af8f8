"""The files of a ref beside a working tree, by git itself."""

import errno
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from helpers.git_repository import ALONE, commit, git, repository, write
from helpers.processes import files_of_at_most

from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine import git as machine_git
from pytest_tfperf.turns.ref_files import write_tree

pytestmark = pytest.mark.usefixtures("processes")

OLD, NEW = "RATE = 1\n", "RATE = 2\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Two commits: `v1` has the old rate, main the new one."""
    files = {
        "pkg/__init__.py": "",
        "pkg/rate.py": OLD,
        "tests/test_rate.py": "",
        ".gitignore": "*.log\n.venv/\n",
    }
    root = repository(tmp_path_factory.mktemp("template") / "project", files)
    git(root, "tag", "v1")
    commit(root, "second", {"pkg/rate.py": NEW})
    return root


@pytest.fixture
def root(template, tmp_path):
    return shutil.copytree(template, tmp_path / "project", symlinks=True).resolve()


def listing(folder):
    """Every path below a folder with its mode, time and content."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, content(path))
        for path in sorted(folder.rglob("*"))
    }


def content(path):
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None


def files(folder):
    return {
        path.relative_to(folder).as_posix(): content(path)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def test_the_files_of_a_ref_stand_beside_the_working_tree(root, tmp_path, monkeypatch):
    tree = write_tree("v1", root, tmp_path / "side")
    assert (tree.root, tree.ref, tree.commit) == (root, "v1", git(root, "rev-parse", "v1").strip())
    assert tree.path.is_relative_to((tmp_path / "side").resolve())
    # where the top level is a package, its name is the package's
    assert tree.path.name == "project"
    named = {"pkg/__init__.py", "pkg/rate.py", "tests/test_rate.py", ".gitignore"}
    assert files(tree.path).keys() == tree.tracked == named
    assert (tree.path / "pkg/rate.py").read_text() == OLD
    assert (root / "pkg/rate.py").read_text() == NEW
    # a subfolder is a start for the whole repository, and a relative folder gives absolute paths
    assert write_tree("v1", root / "pkg", tmp_path / "again").root == root
    monkeypatch.chdir(tmp_path)
    relative = write_tree("v1", Path("project"), Path("relative"))
    assert relative.path == (tmp_path / "relative/files/project").resolve()


@pytest.mark.full
def test_what_names_a_commit_is_a_ref(root, tmp_path):
    git(root, "tag", "-a", "-m", "of v1", "annotated", "v1")
    git(root, "branch", "other/branch", "v1")
    main, first = (git(root, "rev-parse", ref).strip() for ref in ("main", "v1"))
    refs = {"v1": first, "main": main, "HEAD~1": first, "annotated": first, "other/branch": first}
    for n, (ref, full) in enumerate({**refs, first: first, first[:8]: first}.items()):
        assert write_tree(ref, root, tmp_path / str(n)).commit == full, ref


def test_hooks_index_stash_and_working_tree_are_left_alone(root, tmp_path):
    write(root, {"pkg/rate.py": "stashed"})
    git(root, "stash")
    write(root, {"pkg/rate.py": "staged"})
    git(root, "add", "pkg/rate.py")
    write(
        root, {"pkg/rate.py": "not staged", "pkg/added.py": "", "new.py": "", "run.log": "ignored"}
    )
    git(root, "add", "pkg/added.py")
    git(root, "rm", "-q", "--cached", "tests/test_rate.py")
    os.utime(
        root / "pkg/__init__.py", (1, 1)
    )  # its time is not the index's: a status would renew that
    for name in (
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "fsmonitor",
        "pre-auto-gc",
    ):
        hook = root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        hook.chmod(0o755)
    git(root, "config", "core.fsmonitor", ".git/hooks/fsmonitor")
    git(root, "config", "core.splitIndex", "true")
    before = listing(root)
    tree = write_tree("v1", root, tmp_path / "side")
    assert listing(root) == before
    assert not (tmp_path / "hook-ran").exists()
    assert git(root, "stash", "list").count("\n") == 1
    assert (tree.path / "pkg/rate.py").read_text() == OLD
    assert not tree.same
    assert tree.tracked == files(tree.path).keys() | {"pkg/added.py"}


@pytest.mark.full
def test_a_hook_may_start_it(root, tmp_path, monkeypatch):
    other = repository(tmp_path / "other", {"x": ""})
    for name, value in {
        "GIT_DIR": other / ".git",
        "GIT_WORK_TREE": other,
        "GIT_INDEX_FILE": tmp_path / "no-index",
        "GIT_PREFIX": "y/",
    }.items():
        monkeypatch.setenv(name, str(value))
    tree = write_tree("v1", root, tmp_path / "side")
    assert (tree.root, tree.tracked) == (root, files(tree.path).keys())
    assert not (tmp_path / "no-index").exists()


@pytest.mark.full
def test_modes_links_and_odd_names_are_kept(root, tmp_path):
    names = ["a b.py", "ünï.py", "line\nbreak.py", ' "quoted"\t.py', "-dash", "back\\slash"]
    if os.uname().sysname == "Linux":
        names.append(os.fsdecode(b"latin-\xe9.py"))  # no file system of a Mac takes it
    write(
        root,
        {name: name.encode("utf-8", "surrogateescape") for name in names}
        | {"run.sh": "#!/bin/sh\n"},
    )
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/rate.py")
    (root / "dangling").symlink_to("/nowhere/at/all")
    commit(root, "odd", {})
    tree = write_tree("HEAD", root, tmp_path / "side")
    assert set(names) < tree.tracked
    assert files(tree.path) == {name: content(root / name) for name in tree.tracked}
    assert stat.S_IMODE((tree.path / "run.sh").stat().st_mode) & 0o111
    assert not stat.S_IMODE((tree.path / "pkg/rate.py").stat().st_mode) & 0o111
    assert tree.same


@pytest.mark.full
def test_a_top_level_with_an_odd_name(tmp_path):
    root = repository(tmp_path / " a\nb ", {"x.py": "1"})
    tree = write_tree("main", root, tmp_path / "side")
    assert (tree.root, files(tree.path)) == (root, {"x.py": b"1"})


@pytest.mark.full
def test_attributes_are_those_of_the_ref(root, tmp_path):
    commit(root, "windows", {".gitattributes": "*.csv text eol=crlf\n", "data.csv": "1\n"})
    git(root, "tag", "crlf")
    commit(root, "unix", {".gitattributes": "*.csv text eol=lf\n"})
    assert (write_tree("crlf", root, tmp_path / "a").path / "data.csv").read_bytes() == b"1\r\n"
    assert (write_tree("HEAD", root, tmp_path / "b").path / "data.csv").read_bytes() == b"1\n"


@pytest.mark.full
def test_filters_run_as_git_runs_them(root, tmp_path):
    commit(
        root,
        "filtered",
        {
            ".gitattributes": "*.big filter=big\nraw.big -filter\n",
            "a.big": "pointer",
            "raw.big": "pointer",
        },
    )
    git(root, "config", "filter.big.smudge", "tr a-z A-Z")
    tree = write_tree("HEAD", root, tmp_path / "side")
    assert (content(tree.path / "a.big"), content(tree.path / "raw.big")) == (
        b"POINTER",
        b"pointer",
    )


@pytest.mark.full
def test_a_filter_that_is_needed_and_fails_is_said(root, tmp_path):
    commit(root, "filtered", {".gitattributes": "*.big filter=big\n", "a.big": "pointer"})
    git(root, "config", "filter.big.smudge", "not-installed-anywhere")
    assert content(write_tree("HEAD", root, tmp_path / "a").path / "a.big") == b"pointer"
    git(root, "config", "filter.big.required", "true")
    with pytest.raises(
        PairedError, match=r"HEAD: its files cannot be written .*a\.big: smudge filter big failed"
    ):
        write_tree("HEAD", root, tmp_path / "b")


@pytest.mark.full
def test_same_is_what_the_files_say(root, tmp_path):
    def same(ref):
        return write_tree(ref, root, tmp_path / f"side-{len(list(tmp_path.iterdir()))}").same

    assert same("main")
    assert not same("v1")
    os.utime(root / "pkg/rate.py", (1, 1))
    write(root, {"untracked.py": "", "run.log": ""})
    assert same("main")
    git(root, "update-index", "--assume-unchanged", "pkg/rate.py")
    write(root, {"pkg/rate.py": OLD})
    assert not same("main")
    assert same("v1")
    (root / "pkg/rate.py").unlink()
    assert not same("v1")


@pytest.mark.full
def test_a_file_that_is_added_or_removed_differs(root, tmp_path):
    git(root, "add", "-N", *(write(root, {"more.py": ""}) or ["more.py"]))
    assert not write_tree("main", root, tmp_path / "a").same
    git(root, "rm", "-q", "--cached", "more.py")
    assert write_tree("main", root, tmp_path / "b").same
    git(root, "rm", "-q", "--cached", "pkg/rate.py")
    assert not write_tree("main", root, tmp_path / "c").same


@pytest.mark.full
def test_a_linked_worktree_is_a_working_tree(root, tmp_path):
    git(root, "worktree", "add", "-q", tmp_path / "linked", "v1")
    linked = (tmp_path / "linked").resolve()
    write(linked, {"pkg/rate.py": "3"})
    before = listing(root)
    tree = write_tree("main", linked, tmp_path / "side")
    assert (tree.root, tree.same, (tree.path / "pkg/rate.py").read_text()) == (linked, False, NEW)
    assert (
        write_tree("HEAD", linked, tmp_path / "head").commit == git(root, "rev-parse", "v1").strip()
    )
    assert listing(root) == before
    assert git(root, "worktree", "list").count("\n") == 2


@pytest.mark.full
def test_a_merge_may_be_under_way(root, tmp_path):
    git(root, "checkout", "-q", "-b", "side", "v1")
    commit(root, "other", {"pkg/rate.py": "RATE = 3\n"})
    git(root, "merge", "-q", "main", fails=True)
    assert "UU pkg/rate.py" in git(root, "status", "--porcelain")
    before = listing(root)
    tree = write_tree("main", root, tmp_path / "tree")
    assert ((tree.path / "pkg/rate.py").read_text(), tree.same) == (NEW, False)
    assert tree.tracked == files(tree.path).keys()
    assert listing(root) == before


@pytest.mark.full
def test_a_sparse_checkout_does_not_make_the_refs_files_sparse(root, tmp_path):
    git(root, "status")  # the copy's files are unknown to its index
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "tests")
    assert not (root / "pkg").exists()
    before = {path: entry[:1] + entry[2:] for path, entry in listing(root).items()}
    tree = write_tree("main", root, tmp_path / "side")
    assert files(tree.path).keys() == tree.tracked
    assert tree.same
    # git gives the objects of a sparse index a new time whenever it is read whole
    assert {path: entry[:1] + entry[2:] for path, entry in listing(root).items()} == before


# what is refused


def refused(ref, start, folder):
    with pytest.raises(PairedError) as error:
        write_tree(ref, start, folder)
    assert ref in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.full
def test_git_has_to_be_installed(root, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PairedError, match=r"needs git, which cannot be run .* install it"):
        write_tree("v1", root, tmp_path / "side")


@pytest.mark.full
def test_git_may_hang(root, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(PairedError, match=r"git rev-parse in .* did not end within 0\.05 s"):
        machine_git.git(root, "rev-parse", "HEAD", limit_s=0.05)


@pytest.mark.full
def test_a_folder_outside_of_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "plain").mkdir()
    text = refused("main", tmp_path / "plain", tmp_path / "side")
    assert "git finds none at" in text
    assert "not a git repository" in text


@pytest.mark.full
def test_a_repository_of_somebody_else_comes_with_gits_own_advice(root, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    text = refused("v1", root, tmp_path / "side")
    assert "git config --global --add safe.directory " in text
    assert str(root) in text


@pytest.mark.full
def test_a_bare_repository_and_the_inside_of_git(root, tmp_path):
    git(tmp_path, "clone", "-q", "--bare", root, "bare")
    assert "is a bare repository" in refused("v1", tmp_path / "bare", tmp_path / "side")
    assert "is inside of a repository's .git" in refused("v1", root / ".git", tmp_path / "side")


def test_a_ref_that_does_not_exist(root, tmp_path):
    gone = "gone", "v", "--help", "", "v1..main", "^main", "0" * 40, "a\0b", "main@{99}", "HEAD^9"
    for ref in gone:
        said = refused(ref, root, tmp_path / "side")
        assert "has no such commit, branch or tag; " in said, ref
        assert not (tmp_path / "side").exists(), ref
    git(root, "update-ref", "refs/remotes/origin/feature", "main")
    for ref, near in (
        ("mian", "main"),
        ("mein", "main"),
        ("v11", "v1"),
        ("feature", "origin/feature"),
        ("upstream/main", "main"),
    ):
        assert f"it has {near}; git fetch" in refused(ref, root, tmp_path / "side")


@pytest.mark.full
def test_a_repository_without_a_commit(tmp_path):
    git(tmp_path, "init", "-q", "empty")
    assert "has no such commit, branch or tag; git fetch" in refused(
        "HEAD", tmp_path / "empty", tmp_path / "side"
    )


@pytest.mark.full
def test_a_shallow_clone_says_how_it_gets_the_rest(root, tmp_path):
    git(tmp_path, "clone", "-q", "--depth=1", root.as_uri(), "shallow")
    text = refused("v1", tmp_path / "shallow", tmp_path / "side")
    assert "fetch-depth: 0" in text
    command = text.partition("shallow: ")[2].partition(" (")[0]
    subprocess.run(command, shell=True, cwd=tmp_path / "shallow", check=True, capture_output=True)
    assert write_tree("v1", tmp_path / "shallow", tmp_path / "side").tracked


@pytest.mark.full
def test_a_ref_to_something_else(root, tmp_path):
    git(root, "tag", "-a", "-m", "", "of-a-tree", "HEAD^{tree}")
    for ref, kind in (
        ("HEAD:pkg", "tree"),
        ("HEAD:pkg/rate.py", "blob"),
        ("HEAD^{tree}", "tree"),
        ("of-a-tree", "tag"),
    ):
        assert f"{ref} is a {kind} and no commit" in refused(ref, root, tmp_path / "side")


@pytest.mark.full
def test_submodules_that_only_the_working_tree_has(root, tmp_path):
    part = repository(tmp_path / "part", {"data.txt": "1"})
    git(root, "submodule", "add", "-q", part, "vendor/part")
    commit(root, "part", {})
    text = refused("HEAD", root, tmp_path / "side")
    assert "submodule vendor/part" in text
    assert "git submodule deinit vendor/part" in text
    assert write_tree("v1", root, tmp_path / "before").same is False
    git(root, "submodule", "deinit", "-q", "vendor/part")
    git(root, "config", "submodule.recurse", "true")
    git(root, "config", "submodule.active", ".")
    tree = write_tree("HEAD", root, tmp_path / "neither")
    assert tree.same
    assert (
        list((tree.path / "vendor/part").iterdir()) == list((root / "vendor/part").iterdir()) == []
    )


@pytest.mark.full
def test_a_submodule_can_be_a_project(root, tmp_path):
    part = repository(tmp_path / "part", {"data.txt": "1"})
    git(root, "submodule", "add", "-q", part, "vendor/part")
    commit(root / "vendor/part", "second", {"data.txt": "2"})
    tree = write_tree("HEAD~1", root / "vendor/part", tmp_path / "side")
    assert (tree.root, content(tree.path / "data.txt")) == (root / "vendor/part", b"1")


@pytest.mark.full
def test_compiled_code_that_is_tracked(root, tmp_path):
    commit(
        root,
        "built",
        {f"pkg/_{i}.so": b"" for i in range(6)} | {"pkg/_w.pyd": b"", "pkg/so.py": ""},
    )
    assert "pkg/_0.so, pkg/_1.so, pkg/_2.so, pkg/_3.so, pkg/_4.so, and 2 more" in refused(
        "HEAD", root, tmp_path / "side"
    )
    assert write_tree("v1", root, tmp_path / "before").tracked


@pytest.mark.full
def test_a_folder_that_cannot_be_written(root, tmp_path):
    write(tmp_path, {"file": ""})
    assert "cannot be written" in refused("v1", root, tmp_path / "file")
    write_tree("v1", root, tmp_path / "side")
    assert "cannot be written" in refused("v1", root, tmp_path / "side")  # twice in one folder


@pytest.mark.full
def test_a_disk_that_is_full(root, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copy2", full)
    assert "No space left on device" in refused("v1", root, tmp_path / "side")


@pytest.mark.full
def test_git_may_be_ended_while_it_writes(root, tmp_path):
    commit(root, "large", {"large.bin": b"\0" * 400_000})
    with files_of_at_most(100_000):
        text = refused("HEAD", root, tmp_path / "side")
    assert (
        f"cannot be written to {tmp_path / 'side/files/project'} (git read-tree ended with -{signal.SIGXFSZ:d})"
        in text
    )


@pytest.mark.full
def test_an_index_that_cannot_be_read(root, tmp_path):
    (root / ".git/index").write_bytes(b"DIRC<<<<<<< broken")
    before = listing(root)
    assert "git cannot tell what the working tree" in refused("v1", root, tmp_path / "side")
    assert listing(root) == before


@pytest.mark.full
def test_objects_that_are_missing(root, tmp_path):
    blob = git(root, "rev-parse", "v1:pkg/rate.py").strip()
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert "cannot be written" in refused("v1", root, tmp_path / "side")
    folder = git(root, "rev-parse", "v1:pkg").strip()
    (root / ".git/objects" / folder[:2] / folder[2:]).unlink()
    assert "cannot be listed" in refused("v1", root, tmp_path / "again")
