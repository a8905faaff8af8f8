"""
Baseline files: structure beside each test file, detail and timing in folders next to it.

`__tfperf__/<test file>.json` is for reviewers: sorted, rounded, one line a metric.
`__tfperf__/detail/<test file>.py.json` holds lists that explain changes: ops, Python functions.
`__tfperf__/timing/<class>.json` holds the last runs and the medians of the first five. Files are
updated under a lock.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tfperf.baseline.totals import COUNTED_STEPS
from pytest_tfperf.errors import BaselineError, CaptureError
from pytest_tfperf.json_file import JsonFileError, parse_json, read_text
from pytest_tfperf.machine.locks import held
from pytest_tfperf.values import Json

FOLDER = "__tfperf__"
OPS = "ops"
"""The list of an entry with the FLOPs and types of its ops."""
IN_XLA, OUTSIDE_XLA = "in_xla", "outside_xla"
"""Lists of an entry for platforms on which XLA compiles a part of the step."""
_LISTS = (OPS, "op_types", IN_XLA, OUTSIDE_XLA, "python_functions")
STRUCTURE, DETAIL, TIMES = "structure", "detail", "step times of a machine"
"""Kinds of baseline files."""
BASELINE_FORMAT = 1
"""Version of the baseline files."""
_LOCK_SECONDS = 60
_SHORTEST_S, _LONGEST_S = 1e-9, 1e7
_RESTORE = "restore it from git, or delete it and run --tfperf-update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The baseline files of one test file."""

    structure: Path
    timing: Path
    """Folder of the timing files."""
    test_file: str
    """The test file, relative to the rootdir."""
    project: Path
    """pytest's rootdir."""
    root: Path
    """Folder of all baselines: the rootdir by default."""
    keeps_times: bool = True
    """False if a team's history keeps the times instead of timing files."""

    @classmethod
    def of(cls, file: str, rootdir: Path, baseline_dir: Path | None) -> Place:
        """
        Find the baseline files of a test file.

        Args:
            file: The test file, relative to the rootdir.
            rootdir: pytest's rootdir.
            baseline_dir: A folder of all baselines, in which the file's path is mirrored.
        """
        relative = Path(file)
        root = rootdir if baseline_dir is None else rootdir / baseline_dir
        folder = root / relative.parent / (FOLDER if baseline_dir is None else "")
        return cls(
            structure=folder / f"{relative.stem}.json",
            timing=folder / "timing",
            test_file=file,
            project=rootdir,
            root=root,
        )

    @property
    def detail(self) -> Path:
        """File of the lists that explain changes of the structure."""
        return detail_file(self.structure)

    def timing_file(self, machine: Mapping[str, Any]) -> Path:
        """Return the timing file of a machine class."""
        return self.timing / f"{machine_slug(machine)}.json"

    def timing_key(self, key: str) -> str:
        """Return the name of an entry in a timing file, which several test files share."""
        return f"{Path(self.test_file).name}::{key}"


def lies_below(path: Path, root: Path) -> bool:
    """Return whether a path leads below a folder, also through links; not if it leads nowhere."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a name that no file can have, or a circle
        return False


def entry_key(test: str, profile: str) -> str:
    """Return the name of a profile's entry: the test's, with `/name` where the profile has one."""
    return f"{test}/{profile}" if profile else test


def detail_file(structure: Path) -> Path:
    """Return the detail file beside a structure file; no test file has that name for its own."""
    return structure.parent / DETAIL / f"{structure.stem}.py.json"


def read_structure(path: Path) -> dict[str, Json]:
    """
    Return the entries of a structure file by key, with their lists; none without the file.

    Raises:
        BaselineError: If one is of another kind, damaged, in conflict, or of a newer format.
    """
    content, detail = read_file(path), read_file(detail_file(path))
    refuse_other_kind(path, content, STRUCTURE)
    refuse_other_kind(detail_file(path), detail, DETAIL)
    lists = detail.get("lists", {})
    return {key: with_lists(one, lists.get(key)) for key, one in content.get("tests", {}).items()}


def with_lists(entry: Json, lists: Json | None) -> Json:
    """Return an entry with its lists, unless they are those of another workload."""
    if lists is None or lists["workload"] != entry["workload"]:
        return entry
    both = {name: {**entry.get(name, {}), **lists.get(name, {})} for name in _LISTS}
    return {**entry, **{name: found for name, found in both.items() if found}}


def split(entry: Json) -> tuple[Json, Json]:
    """Return the parts of an entry in the structure file and, if it has any, in the detail file."""
    lists = {name: part for name, part in entry.items() if name in _LISTS}
    figures = {name: part for name, part in entry.items() if name not in _LISTS}
    return figures, {"workload": entry["workload"], **lists} if lists else {}


def read_times(path: Path) -> dict[str, Json]:
    """
    Return the entries of a timing file by key; none if the file does not exist.

    Raises:
        BaselineError: If it is not a timing file, damaged, in conflict, or of a newer format.
    """
    content = read_file(path)
    refuse_other_kind(path, content, TIMES)
    entries: dict[str, Json] = content.get("tests", {})
    return entries


def read_machine(path: Path) -> Json:
    """
    Return the machine class of a timing file.

    Raises:
        BaselineError: As `read_times`.
    """
    machine = read_file(path).get("machine", {})
    return machine if isinstance(machine, dict) else {}


def refuse_other_kind(path: Path, content: Json, kind: str) -> None:
    """
    Refuse a file of times in the place of a structure, and the like.

    Raises:
        BaselineError: If it is of another kind.
    """
    if content and _kind(content) != kind:
        raise BaselineError(f"baseline {path}: not a file of the {kind}; {_RESTORE}")


def _kind(content: Json) -> str:
    if "lists" in content:
        return DETAIL
    return TIMES if "machine" in content else STRUCTURE


def machine_slug(machine: Mapping[str, Any]) -> str:
    """Return a file name for a machine class: readable, and distinct for distinct fields."""
    title = f"{machine.get('accelerators')} {machine.get('cpu')}".lower().replace("none", "cpu")
    words = re.sub(r"[^a-z0-9]+", "-", title).strip("-")
    digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:8]
    return f"{words[:60]}-{digest}"


def read_file(path: Path) -> Json:
    """
    Read a baseline file; empty if it does not exist.

    Raises:
        BaselineError: If it is damaged, in conflict, or of a newer format.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return {}
    except JsonFileError as error:
        is_sound = isinstance(error.__cause__, OSError)  # for all that is known
        advice = "mend that, and try again" if is_sound else _RESTORE
        raise BaselineError(f"baseline {path}: {error}; {advice}") from error
    if re.search(r"^(<{7}|={7}|>{7})", text, re.MULTILINE):
        raise BaselineError(
            f"baseline {path}: has conflict marks of a merge; keep one side, "
            "or delete the file and run --tfperf-update"
        )
    try:
        content: Json = parse_json(text)
    except JsonFileError as error:
        raise BaselineError(f"baseline {path}: {error}; {_RESTORE}") from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > BASELINE_FORMAT:
        raise BaselineError(
            f"baseline {path}: format {version}, this version reads up to {BASELINE_FORMAT}; "
            "upgrade pytest-tfperf"
        )
    if type(version) is not int or version < 1 or not _well_formed(content):
        raise BaselineError(f"baseline {path}: not a baseline file; {_RESTORE}")
    return content


def _well_formed(content: Json) -> bool:
    """Return whether its entries have the right types."""
    shape = {TIMES: _is_history, DETAIL: _has_lists}.get(_kind(content), _is_structure)
    entries = content.get("lists", content.get("tests"))
    return isinstance(entries, dict) and all(
        _are_dicts(entry, "workload") and shape(entry) for entry in entries.values()
    )


def _is_structure(entry: Json) -> bool:
    pipeline = entry.get("pipeline", [])  # this and the lists of platforms are optional
    return (
        _are_dicts(entry, "program", "platform", "setting")
        and type(entry.get(COUNTED_STEPS, 0)) is int
        and isinstance(pipeline, list)
        and all(isinstance(stage, str) for stage in pipeline)
        and all(map(_are_numbers, (entry["program"], *entry["platform"].values())))
        and _has_lists(entry)
    )


def _has_lists(entry: Json) -> bool:
    """Return whether the lists of an entry, if it has them, are numbers by platform and name."""
    lists = [entry.get(name, {}) for name in _LISTS]
    return all(isinstance(one, dict) and all(map(_are_numbers, one.values())) for one in lists)


def _is_history(entry: Json) -> bool:
    runs, since = entry.get("runs"), entry.get("since", "")
    return (
        isinstance(runs, list)
        and isinstance(since, str)
        and all(map(_is_run, (*runs, entry.get("anchor"))))
    )


def _is_run(run: object) -> bool:
    """Return whether an object holds the times of a run or of the anchor."""
    return (
        _are_numbers(run)
        and isinstance(run, dict)
        and is_step_time(run.get("step_time", 1))
        and run.get("runs", 1) >= 1
    )


def is_step_time(seconds: float) -> bool:
    """Return whether a number can be a step time; the spread of others leaves floating point."""
    return _SHORTEST_S <= seconds <= _LONGEST_S


def _are_dicts(entry: object, *names: str) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), dict) for name in names)


def _are_numbers(values: object) -> bool:
    """Return whether an object holds finite numbers, apart from commit and date."""
    return isinstance(values, dict) and all(
        isinstance(value, str)
        if name in RUN_WORDS
        else isinstance(value, (int, float)) and math.isfinite(value)
        for name, value in values.items()
    )


RUN_WORDS = ("commit", "created")


@contextmanager
def locked(folders: Iterable[Path]) -> Iterator[None]:
    """
    Lock the baselines of these folders; the lock files are elsewhere, so that nobody commits them.

    Raises:
        BaselineError: If another run has held a lock for too long.
    """
    names = sorted({f"baselines-{folder.resolve()}" for folder in folders})
    with ExitStack() as stack:
        try:
            stack.enter_context(
                held(
                    names,
                    lambda _: None,
                    patience_s=_LOCK_SECONDS,
                    awaited="another run has written the same baselines",
                    advice="try again when it is done",
                )
            )
        except CaptureError as error:
            raise BaselineError(f"baselines: nothing was changed: {error}") from None
        yield
