"""
Baseline files: structure beside each test file, detail and timing in folders next to it.

`__tfperf__/<test file>.json` is for reviewers: sorted, rounded, one line a metric.
`__tfperf__/detail/<test file>.py.json` holds what messages need besides: versions, the number of
steps, and lists that explain changes (ops, Python functions).
`__tfperf__/timing/<class>.json` holds the last runs and the medians of the first five. Files are
updated under a lock.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from pytest_tfperf.errors import BaselineError, CaptureError
from pytest_tfperf.files import short_path
from pytest_tfperf.json_file import JsonFileError, parse_json, read_text
from pytest_tfperf.machine.locks import held
from pytest_tfperf.text import elide
from pytest_tfperf.values import Json, Workload

FOLDER = "__tfperf__"
OPS = "ops"
"""The list of an entry with the FLOPs and types of its ops."""
IN_XLA, OUTSIDE_XLA = "in_xla", "outside_xla"
"""Lists of an entry for platforms on which XLA compiles a part of the step."""
STRUCTURE, DETAIL, TIMES = "structure", "detail", "step times of a machine"
"""Kinds of baseline files."""
BASELINE_FORMAT = 2
"""Version of the baseline files; in format 1, the structure file had the versions and the steps."""
_LOCK_SECONDS = 60
_SHORTEST_S, _LONGEST_S = 1e-9, 1e7
_RESTORE = "restore it from git, or delete it and run --tfperf-update"
_WIDTH = 160
"""Characters of what is wrong with a file."""
RUN_WORDS = ("commit", "created")
"""What a run of a timing file has besides its metrics."""
_Lists = dict[str, dict[str, float]]


class _Listed(Struct, kw_only=True):
    """The part of an entry in the detail file; lists are numbers by platform and name."""

    workload: Workload
    setting: dict[str, str] = {}
    counted_steps: int = 0
    ops: _Lists = {}
    op_types: _Lists = {}
    in_xla: _Lists = {}
    outside_xla: _Lists = {}
    python_functions: _Lists = {}


_DETAIL = frozenset(_Listed.__struct_fields__) - {"workload"}


class _Entry(_Listed, kw_only=True):
    program: dict[str, float]
    platform: dict[str, dict[str, float]]
    pipeline: list[str] = []
    python_calls: _Lists = {}


class _Structure(Struct):
    tests: dict[str, _Entry]


class _Detail(Struct):
    lists: dict[str, _Listed]


class _Run(Struct, kw_only=True):
    """The times of a run, or of the anchor; other metrics are numbers too."""

    commit: str = ""
    created: str = ""
    runs: Annotated[float, Meta(ge=1)] = 1
    step_time: Annotated[float, Meta(ge=_SHORTEST_S, le=_LONGEST_S)] = 1


class _History(Struct, kw_only=True):
    workload: Workload
    runs: list[_Run]
    anchor: _Run
    since: str = ""


class _Times(Struct):
    machine: dict[str, Any]
    tests: dict[str, _History]


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
        """Find the baseline files of a test file, whose path a `baseline_dir` mirrors."""
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
    def shown(self) -> str:
        """The file of the structure for people: relative to the rootdir, if it is below that."""
        return short_path(self.structure, self.project)

    @property
    def detail(self) -> Path:
        """File of what messages on the structure need besides."""
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
    """Return the entries of a structure file by key, with their detail; none without the file."""
    content, detail = read_file(path), read_file(detail_file(path))
    refuse_other_kind(path, content, STRUCTURE)
    refuse_other_kind(detail_file(path), detail, DETAIL)
    lists = detail.get("lists", {})
    return {key: with_detail(one, lists.get(key)) for key, one in content.get("tests", {}).items()}


def with_detail(figures: Json, detail: Json | None) -> Json:
    """Return an entry with its detail, unless that is of another workload, as after a merge."""
    if detail is None or detail["workload"] != figures["workload"]:
        return figures
    return {**figures, **detail}


def split(entry: Json) -> tuple[Json, Json]:
    """Return the parts of an entry in the structure file and in the detail file."""
    figures = {name: part for name, part in entry.items() if name not in _DETAIL}
    detail = {name: part for name, part in entry.items() if name in _DETAIL}
    return figures, {"workload": entry["workload"], **detail}


def read_times(path: Path) -> dict[str, Json]:
    """Return the entries of a timing file by key; none if the file does not exist."""
    content = read_file(path)
    refuse_other_kind(path, content, TIMES)
    entries: dict[str, Json] = content.get("tests", {})
    return entries


def read_machine(path: Path) -> Json:
    """Return the machine class of a timing file."""
    machine: Json = read_file(path).get("machine", {})
    return machine


def refuse_other_kind(path: Path, content: Json, kind: str) -> None:
    """Refuse a file of times in the place of a structure, and the like."""
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
    """Read a baseline file, empty if none; BaselineError if damaged, in conflict or newer."""
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
    if type(version) is not int or version < 1:
        raise BaselineError(f"baseline {path}: not a baseline file; {_RESTORE}")
    try:
        msgspec.convert(content, {TIMES: _Times, DETAIL: _Detail}.get(_kind(content), _Structure))
        for entry in content["tests"].values() if _kind(content) == TIMES else ():
            for run in (*entry["runs"], entry["anchor"]):
                times = {name: run[name] for name in run if name not in RUN_WORDS}
                msgspec.convert(times, dict[str, float])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half a surrogate pair
        why = elide(" ".join(str(error).split()), _WIDTH)
        raise BaselineError(f"baseline {path}: damaged: {why}; {_RESTORE}") from error
    return content


def is_step_time(seconds: float) -> bool:
    """Return whether a number can be a step time; the spread of others leaves floating point."""
    return _SHORTEST_S <= seconds <= _LONGEST_S


@contextmanager
def locked(folders: Iterable[Path]) -> Iterator[None]:
    """
    Lock the baselines of these folders; the lock files are elsewhere, so that nobody commits them.

    Raises BaselineError if another run has held a lock for too long.
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
