"""The two versions that a paired run compares: their files, their Python and how they start."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_tfperf.turns.other_python import (
    Interpreter,
    ask,
    distinct_name,
    environment_of,
    other_python,
    package_differences,
)
from pytest_tfperf.turns.own_flags import autoclustering_environment
from pytest_tfperf.turns.pytest_child import (
    PytestRun,
    invocation_arguments,
    same_run,
    shows_output,
    uncovered_environment,
)
from pytest_tfperf.turns.ref_files import write_tree
from pytest_tfperf.turns.worktree import (
    Tree,
    TwoPythons,
    Version,
    is_of_project,
    mapped,
    mapped_argument,
    tree_alone,
)
from pytest_tfperf.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Both versions of a paired run, found and ready to start."""

    tree: Tree
    """The working tree, and the files of the other version."""
    name: str
    """Name of the other version in messages."""
    pythons: tuple[Interpreter, Interpreter] | None = None
    """The Python of this process and that of the other version, where they are two."""

    @property
    def here(self) -> str:
        """Name of the version that this process belongs to in messages."""
        return "this environment" if self.tree.is_alone else "the working tree"

    @property
    def otherwise(self) -> str:
        """Advice where the other version cannot run a test."""
        another = "an environment in" if self.tree.is_alone else "a ref on"
        return f"{another} which it runs, or stored values (--tfperf-baseline)"

    @property
    def packages(self) -> dict[str, tuple[str | None, str | None]]:
        """Packages that differ: their versions on the other side and here."""
        return package_differences(*self.pythons[::-1]) if self.pythons else {}

    def to_json(self) -> Json | None:
        """Return what reports show beside the environment of a test; None with one Python."""
        if self.pythons is None:
            return None
        return {
            "name": self.name,
            "python": self.pythons[1].command,
            "packages": {
                name: {"before": before, "after": after}
                for name, (before, after) in self.packages.items()
            },
        }


def find_versions(
    config: pytest.Config, ref: str | None, python: Path | None, folder: Path
) -> Versions:
    """
    Write the ref's files and ask the other Python, as far as they are wanted.

    Args:
        config: The run's configuration.
        ref: A git ref that is compared with; None for the same files.
        python: Another Python, or the folder of its environment; None for the same one.
        folder: Where files are written; the caller removes it.

    Raises:
        PairedError: If the files cannot be written, or the Python cannot run the same tests.
    """
    if python is None:
        assert ref is not None
        tree = write_tree(ref, Path(config.invocation_params.dir), folder)
        return Versions(tree=tree, name=ref)
    environment = uncovered_environment()
    ours = ask(sys.executable, (), environment)
    alone = tree_alone(config.rootpath, "")
    theirs = other_python(python, _shared(ours, alone), environment, ours.platform)
    name = distinct_name(theirs, ours)
    if ref is None:
        return Versions(tree=replace(alone, ref=name), name=name, pythons=(ours, theirs))
    tree = write_tree(ref, Path(config.invocation_params.dir), folder)
    return Versions(tree=tree, name=f"{ref} with {name}", pythons=(ours, theirs))


def pytest_run(
    config: pytest.Config,
    versions: Versions,
    is_tree: bool,
    files: Sequence[str],
    clustered: bool,
    is_first: bool,
) -> PytestRun:
    """
    Return how a process of one of both versions is started.

    Args:
        config: The run's configuration.
        versions: Both versions.
        is_tree: True for the working tree, in the Python of this process.
        files: Test files to collect.
        clustered: True for tests with autocluster=True.
        is_first: True for the first pair, whose output and traces are the user's.
    """
    whole = versions.tree
    tree = replace(whole, path=whole.root) if is_tree else whole
    folder = mapped(Path(config.invocation_params.dir), tree)
    folder.mkdir(parents=True, exist_ok=True)
    label = f"{versions.here}'s process" if is_tree else f"the process on {versions.name}"
    run = same_run(config, label, tree.path, files)
    same, path = run.environment, list(run.path)
    pythons = versions.pythons
    if pythons and not is_tree:
        ours, theirs = pythons
        path = [*_shared(ours, whole), *theirs.path]
        same = environment_of(theirs, same, ours)
        has_cov = "pytest-cov" in theirs.packages
        run = replace(run, python=theirs.command, is_covered=run.is_covered and has_cov)
    two = _two_pythons(pythons if is_tree else pythons[::-1], whole) if pythons else None
    return replace(
        run,
        path=[_mapped_entry(entry, tree) for entry in path],
        arguments=[mapped_argument(argument, tree) for argument in invocation_arguments(config)],
        folder=folder,
        environment=_environment(same, tree, clustered),
        shows_output=is_tree and is_first and shows_output(config),
        version=Version(tree=whole, is_tree=is_tree, is_first=is_first, pythons=two),
    )


def _two_pythons(pythons: tuple[Interpreter, ...], tree: Tree) -> TwoPythons:
    """Return what a process of the first Python checks; entries of the project are of both."""
    own, others = (
        tuple(entry for entry in python.path if not _is_of_project(entry, python, tree))
        for python in pythons
    )
    return TwoPythons(name=pythons[0].command, own=own, others=others)


def _shared(ours: Interpreter, tree: Tree) -> list[str]:
    """Return the entries of sys.path that are the user's or the project's, and not of a Python."""
    return [entry for entry in sys.path if not entry or _is_shared(entry, ours, tree)]


def _is_shared(entry: str, ours: Interpreter, tree: Tree) -> bool:
    """Return whether an entry is the project's, or in no folder of this Python."""
    if _is_of_project(entry, ours, tree):
        return True
    own = (one for one in ours.path if not _is_of_project(one, ours, tree))
    return not any(Path(entry).is_relative_to(one) for one in own)


def _is_of_project(entry: str, python: Interpreter, tree: Tree) -> bool:
    """Return whether an entry is a folder of the project, and no environment that lies in it."""
    prefix = Path(python.prefix)
    lies_within = prefix.is_relative_to(tree.root) and prefix != tree.root
    if lies_within and Path(entry).is_relative_to(prefix):
        return False
    return is_of_project(entry, tree)


def _environment(same: Mapping[str, str], tree: Tree, clustered: bool) -> Mapping[str, str]:
    """Return the environment of a version, with Python's paths mapped to its folder."""
    environment = {**same, "PWD": str(mapped(Path.cwd(), tree))}
    entries = [entry for entry in same.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(_mapped_entry(entry, tree) for entry in entries)
    return autoclustering_environment(environment) if clustered else environment


def _mapped_entry(entry: str, tree: Tree) -> str:
    """Map an entry of sys.path; the empty one is the working directory, which is mapped anyway."""
    return str(mapped(entry, tree)) if entry else ""
