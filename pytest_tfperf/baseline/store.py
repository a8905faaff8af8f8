"""
Baseline files: structure beside each test file, timing per machine class in a folder next to it.

`__tfperf__/<test file>.json` is for reviewers: sorted, rounded, one line a metric. `__tfperf__/timing/<class>.json` holds
the last runs and the first one. Files are replaced whole, under a lock; nothing here is called but on request.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pytest_tfperf.errors import BaselineError
from pytest_tfperf.files import replace_file
from pytest_tfperf.metrics import MACHINE, METRICS, PLATFORM, PROGRAM
from pytest_tfperf.results import FORMAT, Json, Profile, TestRecord

FOLDER = "__tfperf__"
KEPT_RUNS = 10
_LOCK_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the baselines of one test file are."""

    structure: Path
    timing: Path
    test_file: str

    @classmethod
    def of(cls, file: str, rootdir: Path, baseline_dir: Path | None) -> Place:
        """For a test file given relative to the rootdir; with a baseline folder its path is mirrored there."""
        relative = Path(file)
        folder = rootdir / relative.parent / FOLDER if baseline_dir is None else rootdir / baseline_dir / relative.parent
        return cls(structure=folder / f"{relative.stem}.json", timing=folder / "timing", test_file=relative.name)

    def timing_file(self, machine: Mapping[str, Any]) -> Path:
        """The timing file of a machine class."""
        return self.timing / f"{machine_slug(machine)}.json"

    def timing_key(self, key: str) -> str:
        """The name of an entry in a timing file, which several test files share."""
        return f"{self.test_file}::{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an update did to one entry."""

    path: Path
    key: str
    what: str


def entry_key(test: str, profile: str) -> str:
    """The name of a profile's entry: the test's, with `/name` where the profile has one."""
    return f"{test}/{profile}" if profile else test


def read_entries(path: Path) -> dict[str, Json]:
    """
    The entries of a baseline file by key, none where there is no file.

    Raises:
        BaselineError: If it is no baseline file, damaged, in conflict, or of a newer format.
    """
    entries: dict[str, Json] = _read(path).get("tests", {})
    return entries


def read_machine(path: Path) -> Json:
    """The machine class that a timing file is for. Raises: as `read_entries`."""
    machine = _read(path).get("machine", {})
    return machine if isinstance(machine, dict) else {}


def machine_slug(machine: Mapping[str, Any]) -> str:
    """A file name for a machine class: readable, and distinct for distinct fields."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{machine.get('accelerators')} {machine.get('cpu')}".lower().replace("none", "cpu")).strip("-")
    digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:8]
    return f"{words[:60]}-{digest}"


def record(place: Place, tests: Iterable[TestRecord], commit: str, only_new: bool) -> list[Change]:
    """
    Store the profiles of tests of one file, but for those that ended before their windows were full; what changed.

    Raises:
        BaselineError: If a file cannot be read or written; then it is as it was.
    """
    found = [(entry_key(test.key, profile.name), profile, test.environment) for test in tests for profile in test.profiles]
    profiles = [entry for entry in found if entry[1].ended is None]
    if not profiles:
        return []
    with _lock(place.structure.parent):
        _read(place.timing_file(profiles[0][2]["machine"]))  # where it is damaged, nothing is written to either file
        changes = _record_structure(place, profiles, commit, only_new)
        _record_timing(place, profiles, commit, only_new)
    return changes


def rounded(number: float) -> float | int:
    """Six significant digits, and whole numbers as such: what is stored, and what stored values are compared as."""
    short = float(f"{number:.6g}")
    return int(number) if float(number).is_integer() else short


def _record_structure(place: Place, profiles: list[tuple[str, Profile, Mapping[str, Any]]], commit: str, only_new: bool) -> list[Change]:
    content = _read(place.structure) or {"format": FORMAT, "tests": {}}
    changes = []
    for key, profile, environment in profiles:
        old = content["tests"].get(key)
        platform = environment["platform"]
        same = old is not None and old["workload"] == profile.workload
        if only_new and old is not None and not same:
            continue
        kept = old if only_new and same else {"program": {}, "platform": {}, "setting": {}}
        here = _stored(profile, PLATFORM) | kept["platform"].get(platform, {})
        entry = {
            "workload": dict(profile.workload),
            "program": _stored(profile, PROGRAM) | kept["program"],
            "platform": {**(old["platform"] if same else {}), platform: here},
            "setting": {**environment["setting"], "commit": commit, **kept["setting"]},
        }
        what = "recorded" if old is None else "updated" if same else f"replaced: the workload was {_flat(old['workload'])}"
        if old is None or {**old, "setting": None} != {**entry, "setting": None}:
            content["tests"][key] = entry
            changes.append(Change(path=place.structure, key=key, what=what))
    if changes:
        _write(place.structure, content)
    return changes


def _record_timing(place: Place, profiles: list[tuple[str, Profile, Mapping[str, Any]]], commit: str, only_new: bool) -> None:
    machine = profiles[0][2]["machine"]
    path = place.timing_file(machine)
    content = _read(path) or {"format": FORMAT, "machine": machine, "tests": {}}
    changed = False
    for key, profile, _ in profiles:
        run = _stored(profile, MACHINE)
        settled = profile.value("step_time").detail.get("settled", False)
        old = content["tests"].get(place.timing_key(key))
        same = old is not None and old["workload"] == profile.workload
        if not run or not settled or (only_new and old is not None):
            continue
        run["commit"] = commit
        runs = [*(old["runs"] if same else []), run][-KEPT_RUNS:]
        content["tests"][place.timing_key(key)] = {
            "workload": dict(profile.workload), "anchor": old["anchor"] if same else run, "runs": runs,
        }  # fmt: skip
        changed = True
    if changed:
        _write(path, content)


def _stored(profile: Profile, scope: str) -> Json:
    known = {name: value.number for name, value in profile.metrics.items() if value.number is not None}
    return {name: rounded(number) for name, number in known.items() if name in METRICS and METRICS[name].scope == scope}


def _flat(workload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in workload.items())


def _read(path: Path) -> Json:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"baseline {path}: cannot be read: {error}") from error
    if re.search(r"^(<{7}|={7}|>{7})", text, re.MULTILINE):
        raise BaselineError(f"baseline {path}: has conflict marks of a merge; keep one side, or delete the file and run --tfperf-update")
    try:
        content: Json = json.loads(text)
    except ValueError as error:
        raise BaselineError(f"baseline {path}: not JSON ({error}); restore it from git, or delete it and run --tfperf-update") from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise BaselineError(f"baseline {path}: format {version}, this version reads up to {FORMAT}; upgrade pytest-tfperf")
    if not isinstance(version, int) or not _well_formed(content):
        raise BaselineError(f"baseline {path}: not a baseline file; restore it from git, or delete it and run --tfperf-update")
    return content


def _well_formed(content: Json) -> bool:
    """Whether whatever is read from it later has the right type; a timing file is one that names its machine."""
    entries, shape = content.get("tests"), _is_history if "machine" in content else _is_structure
    return isinstance(entries, dict) and all(_are_dicts(entry, "workload") and shape(entry) for entry in entries.values())


def _is_structure(entry: Json) -> bool:
    return _are_dicts(entry, "program", "platform", "setting") and all(map(_are_numbers, (entry["program"], *entry["platform"].values())))


def _is_history(entry: Json) -> bool:
    runs = entry.get("runs")
    return isinstance(runs, list) and all(map(_are_numbers, (*runs, entry.get("anchor"))))


def _are_dicts(entry: object, *names: str) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), dict) for name in names)


def _are_numbers(values: object) -> bool:
    """Whether it is an object of finite numbers, but for the commit that they were measured at."""
    return isinstance(values, dict) and all(
        name == "commit" or (isinstance(number, (int, float)) and math.isfinite(number)) for name, number in values.items()
    )


def _write(path: Path, content: Json) -> None:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        replace_file(path, text)
    except OSError as error:
        raise BaselineError(f"baseline {path}: cannot be written: {error.strerror}; nothing was changed") from error


def _lock(folder: Path) -> Any:
    """A lock for the baselines of a folder, kept outside of it so that it is not committed."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    locks = Path(tempfile.gettempdir()) / f"tfperf-locks-{getpass.getuser()}"
    lock = FileLock(locks / digest, timeout=_LOCK_SECONDS)
    try:
        locks.mkdir(exist_ok=True)
        return lock.acquire()
    except (Timeout, OSError) as error:
        raise BaselineError(f"baselines in {folder}: another run holds their lock {lock.lock_file}: {error}") from error
