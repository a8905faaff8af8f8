"""Recording of runs, of this process or accepted ones: the newest structure, and all times."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.baseline.history import cores_of, merge_runs
from pytest_tfperf.baseline.step_time import why_not_recorded
from pytest_tfperf.baseline.store import (
    BASELINE_FORMAT,
    DETAIL,
    STRUCTURE,
    TIMES,
    Place,
    entry_key,
    is_step_time,
    lies_below,
    locked,
    read_file,
    refuse_other_kind,
    split,
    with_detail,
)
from pytest_tfperf.baseline.structure import (
    COUNTED_STEPS,
    LISTS,
    LISTS_OF_PLATFORMS,
    stored,
    structure_of,
)
from pytest_tfperf.checks.limits import tolerated
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.files import replacing
from pytest_tfperf.metric_evidence import TOTALS
from pytest_tfperf.metric_registry import MACHINE, Metric, nearest
from pytest_tfperf.quantities import format_quantity, told_apart
from pytest_tfperf.results import Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import and_more, elide, one_line
from pytest_tfperf.values import Json

_SHOWN_CHANGES = 4
_COLUMNS = 120
"""Characters of a list or map on one line: those of a workload of three inputs."""
_METRICS = ("program", "platform")
"""Parts of an entry with one metric a line."""
_OF_RUN = ("setting", COUNTED_STEPS)
"""Parts of an entry that differ from run to run of unchanged code."""
_GENERATED = b"""# Written by pytest-tfperf. Reviews fold these files.
*.py.json linguist-generated gitlab-generated
"""
ENDED = {"failed": "failed", "error": "had an error", "skipped": "was skipped"}
"""Outcomes of a test that did not pass, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """A change of one entry of a file, or why there is none."""

    path: Path
    key: str
    what: str
    """The change, for people."""
    run: str = ""
    """Date of the run, where it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The changes of a recording."""

    entries: tuple[EntryChange, ...] = ()
    """Entries whose structure changed."""
    added: tuple[EntryChange, ...] = ()
    """Histories that runs were added to."""
    anew: tuple[EntryChange, ...] = ()
    """Histories that start anew."""
    left_out: tuple[EntryChange, ...] = ()
    """Profiles that were not recorded."""
    unread: tuple[str, ...] = ()
    """Messages on baselines that cannot be read."""

    def __add__(self, other: Recorded) -> Recorded:
        return Recorded(
            entries=self.entries + other.entries,
            added=self.added + other.added,
            anew=self.anew + other.anew,
            left_out=self.left_out + other.left_out,
            unread=tuple(dict.fromkeys(self.unread + other.unread)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One profile of one run."""

    place: Place
    key: str
    profile: Profile
    test: ProfiledTest
    run: Run

    @property
    def machine(self) -> Mapping[str, Any]:
        machine: Mapping[str, Any] = self.test.environment["machine"]
        return machine

    def left_out(self, why: str) -> Recorded:
        return Recorded(
            left_out=(
                EntryChange(
                    path=self.place.structure, key=self.key, what=why, run=self.run.created
                ),
            )
        )

    def times(self) -> Json:
        return {
            **stored(self.profile, MACHINE),
            "commit": self.run.commit,
            "created": self.run.created,
        }


def record(
    wanted: Mapping[Place, Sequence[Run]],
    only_new: bool,
    also_partly: bool = False,
) -> Recorded:
    """
    Store the profiles of tests that passed; `only_new` keeps entries that exist.

    Profiles that ended before their windows were full are left out, and times that are not valid
    samples, as those of steps whose buffers drained. What others had of the machine is stored too.
    `also_partly` leaves out test files whose baselines cannot be read. A BaselineError says what
    was written.
    """
    for place in wanted:
        _refuse_links(place)
    with locked(place.structure.parent for place in wanted):
        draft, done = _Draft(), Recorded()
        for place, runs in wanted.items():
            try:
                for path, kind in _files(place, runs).items():
                    refuse_other_kind(path, draft.content(path), kind)
            except BaselineError as error:
                if not also_partly:
                    raise
                done += Recorded(unread=(str(error),))
            else:
                done += _of_file(place, runs, only_new, draft)
        draft.write()
        return done


def _refuse_links(place: Place) -> None:
    """Refuse files that a link of the branch puts outside of the project, or the named folder."""
    here = Path(os.path.abspath(place.project))  # noqa: PTH100 - keeps links
    named = Path(os.path.abspath(place.root))  # noqa: PTH100
    root = here if named.is_relative_to(here) else named
    for path in (place.structure, place.detail, place.timing):
        if not lies_below(path, root):
            raise BaselineError(
                f"baseline {path} leads out of {root} by a link; nothing was written. Remove it, "
                "or name a folder with --tfperf-baseline-dir (tfperf accept: --baseline-dir)"
            )


class _Draft:
    """The files of one update: as they were read, and as they are to be."""

    def __init__(self) -> None:
        self._read: dict[Path, Json] = {}
        self._changed: dict[Path, Json] = {}

    def content(self, path: Path) -> Json:
        """Return the content of a file with its changes; empty if there is none."""
        if path not in self._read:
            self._read[path] = read_file(path)
        return self._changed.get(path) or self._read[path]

    def change(self, path: Path, content: Json) -> None:
        self._changed[path] = content

    def write(self) -> None:
        """Replace the files that change, one after the other."""
        for path, content in self._changed.items():
            text = _laid_out({**content, "format": BASELINE_FORMAT})
            self._replace(path, f"{text}\n".encode(errors="backslashreplace"))  # lone surrogates
            attributes = path.with_name(".gitattributes")
            if "lists" in content and not attributes.exists():
                self._replace(attributes, _GENERATED)

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        try:
            with replacing(path) as file:
                file.write(content)
        except OSError as error:
            raise BaselineError(
                f"baseline {path}: cannot be written: {error.strerror or error}; mend that, and "
                "run the same again: it writes the rest"
            ) from error


def _laid_out(part: Any, depth: int = 0, is_open: bool = True) -> str:
    """Write each metric on a line of its own, and other lists and maps on one if they fit."""
    line = json.dumps(part, sort_keys=True, ensure_ascii=False)
    if not part or not isinstance(part, list | dict) or (len(line) <= _COLUMNS and not is_open):
        return line
    items = []
    for key, one in sorted(part.items()) if isinstance(part, dict) else enumerate(part):
        # the file, its tests, the metrics of an entry, and those of each platform
        opens = depth < 2 or (key in _METRICS if depth == 2 else is_open)
        name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(part, dict) else ""
        items.append(name + _laid_out(one, depth + 1, opens))
    margin = "\n" + "  " * depth
    return line[0] + ",".join(f"{margin}  {item}" for item in items) + margin + line[-1]


def _files(place: Place, runs: Iterable[Run]) -> dict[Path, str]:
    """Return files and kinds that the profiles of these runs go into, if they may be recorded."""
    tests = [test for run in runs for test in run.tests]
    passed = [test for test in tests if test.profiles and test.outcome == "passed"]
    if not passed:
        return {}
    machines = [test.environment["machine"] for test in passed] if place.keeps_times else []
    timing = dict.fromkeys(map(place.timing_file, machines), TIMES)
    return {place.structure: STRUCTURE, place.detail: DETAIL, **timing}


def _of_file(place: Place, runs: Iterable[Run], only_new: bool, draft: _Draft) -> Recorded:
    """Update the entries of one test file."""
    runs = sorted(runs, key=lambda run: run.created)
    tests = [(run, test) for run in runs for test in run.tests]
    found = [
        _Found(
            place=place,
            key=entry_key(test.key, profile.name),
            profile=profile,
            test=test,
            run=run,
        )
        for run, test in tests
        for profile in test.profiles
    ]
    done = Recorded()
    for key in dict.fromkeys(one.key for one in found):
        good, left_out = _good([one for one in found if one.key == key])
        done += left_out
        if good:
            done += _structure(good, only_new, draft)
            timed = good if place.keeps_times else []
            for path in dict.fromkeys(place.timing_file(one.machine) for one in timed):
                same_class = [one for one in good if place.timing_file(one.machine) == path]
                done += _times(path, same_class, only_new, draft)
    return done


def _good(found: Sequence[_Found]) -> tuple[list[_Found], Recorded]:
    """Select the profiles to record: complete, of tests that passed, with the newest workload."""
    good: list[_Found] = []
    left_out = Recorded()
    for one in reversed(found):
        outcome = one.test.outcome
        why = one.profile.ended
        if outcome != "passed":
            why = f"the test {ENDED.get(outcome, outcome)}"
        if why is None and good and good[-1].profile.workload != one.profile.workload:
            why = f"its workload ({_flat(one.profile.workload)}) is not that of the newest run"
        if why is None:
            good.append(one)
        else:
            left_out = one.left_out(why) + left_out
    return good[::-1], left_out


def _structure(found: Sequence[_Found], only_new: bool, draft: _Draft) -> Recorded:
    path, key, workload = found[0].place.structure, found[0].key, found[0].profile.workload
    detail = found[0].place.detail
    content = draft.content(path) or {"format": BASELINE_FORMAT, "tests": {}}
    more = draft.content(detail) or {"format": BASELINE_FORMAT, "lists": {}}
    stored_here, lists_here = content["tests"].get(key), more["lists"].get(key)
    old = None if stored_here is None else with_detail(stored_here, lists_here)
    if only_new and old is not None and old["workload"] != workload:
        return Recorded()
    entry = old if old is not None and old["workload"] == workload else None
    for one in found:
        entry = _entry(entry, one, only_new)
    assert entry is not None
    if old is not None and _values(old) == _values(entry):
        return Recorded()
    figures, lists = split(entry)
    what = _what_changed(old, entry, found[-1].profile.registry)
    draft.change(detail, {**more, "lists": {**more["lists"], key: lists}})
    if stored_here != figures:
        draft.change(path, {**content, "tests": {**content["tests"], key: figures}})
        detail = path
    return Recorded(entries=(EntryChange(path=detail, key=key, what=what),))


def _values(entry: Json) -> Json:
    """Return an entry without what differs from run to run of unchanged code."""
    return {key: part for key, part in entry.items() if key not in _OF_RUN}


def _entry(old: Json | None, one: _Found, only_new: bool) -> Json:
    """Merge the structure of one profile with the stored one, which wins under `only_new`."""
    entry = structure_of(one.profile, one.test.environment)
    platform = one.test.environment["platform"]
    kept = old if old is not None and only_new else {"program": {}, "platform": {}}
    kept_here = kept["platform"].get(platform, {})
    fresh, of_program = entry["platform"][platform], entry["program"]
    here = {name: fresh[name] for name in fresh if name not in kept["program"]} | kept_here
    counted = kept if any(name in kept["program"] for name in TOTALS) else entry
    lists = {"pipeline": kept.get("pipeline", entry.get("pipeline"))}
    for name in LISTS_OF_PLATFORMS:
        others = (old or {}).get(name, {})
        lists[name] = {
            **{key: counts for key, counts in others.items() if key != platform},
            **entry.get(name, {}),
            **kept.get(name, {}),
        }
    return {
        "workload": entry["workload"],
        "program": {name: of_program[name] for name in of_program if name not in kept_here}
        | kept["program"],
        "platform": {**(old["platform"] if old is not None else {}), platform: here},
        "setting": {**entry["setting"], "commit": one.run.commit, **kept.get("setting", {})},
        **({COUNTED_STEPS: counted[COUNTED_STEPS]} if COUNTED_STEPS in counted else {}),
        **{name: found for name, found in lists.items() if found},
    }


def _what_changed(old: Json | None, new: Json, rows: Mapping[str, Metric]) -> str:
    if old is None:
        return "recorded"
    if old["workload"] != new["workload"]:
        return f"replaced: the workload was {_flat(old['workload'])}"
    changes = _differing(old["program"], new["program"], rows)
    for platform, values in new["platform"].items():
        known = old["platform"].get(platform)
        changes += (
            [f"platform {platform} added"] if known is None else _differing(known, values, rows)
        )
    changes += [title for key, title in LISTS.items() if old.get(key) != new.get(key)]
    return f"updated: {and_more(list(dict.fromkeys(changes)), _SHOWN_CHANGES)}"


def _differing(old: Json, new: Json, rows: Mapping[str, Metric]) -> list[str]:
    """List the metrics that differ, as in `retraces 0 → 1`, in the order of the registry."""
    names = [name for name in dict.fromkeys([*rows, *old, *new]) if old.get(name) != new.get(name)]
    return [_change(name, old, new, rows.get(name)) for name in names]


def _change(name: str, old: Json, new: Json, metric: Metric | None) -> str:
    exactly = (
        told_apart(old[name], new[name], metric.unit)
        if metric is not None and name in old and name in new
        else ""
    )
    return f"{name} {_shown(old.get(name), metric)} → {_shown(new.get(name), metric)}{exactly}"


def _shown(number: float | None, metric: Metric | None) -> str:
    if number is None:
        return "unknown"
    return str(number) if metric is None else format_quantity(number, metric.unit)


def _times(path: Path, found: Sequence[_Found], only_new: bool, draft: _Draft) -> Recorded:
    """Update the history in the timing file of one machine class."""
    content = draft.content(path) or {
        "format": BASELINE_FORMAT,
        "machine": dict(found[0].machine),
        "tests": {},
    }
    key, tests = found[0].key, content["tests"]
    name = found[0].place.timing_key(key)
    if only_new and name in tests:
        return Recorded()
    timed = [one for one in found if is_step_time(one.profile.value("step_time").number or 0)]
    reasons = [(one, why_not_recorded(one.profile, one.test.shared_cpu)) for one in timed]
    usable = [one for one, why in reasons if why is None]
    merged = merge_runs(
        tests.get(name),
        [one.times() for one in usable],
        found[0].profile.workload,
        tolerated(found[-1].test.max_regression),
        cores_of(found[0].machine),
    )
    reasons += [(usable[place], why) for place, why in merged.left_out]
    done = sum(
        (one.left_out(f"times: {why}") for one, why in reasons if why is not None), Recorded()
    )
    if merged.entry is None:
        return done
    draft.change(path, {**content, "tests": {**tests, name: merged.entry}})
    change = (EntryChange(path=path, key=key, what=merged.what),)
    return done + (Recorded(anew=change) if merged.level else Recorded(added=change))


def _flat(workload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in workload.items())


def accept(
    runs: Sequence[Run],
    names: Sequence[str],
    rootdir: Path,
    baseline_dir: Path | None,
    keeps_times: bool = True,
) -> Recorded:
    """
    Store the tests in these runs that passed, as `--tfperf-update` does.

    The structure is that of the newest run; times of all runs are added, unless a team's history
    keeps the times. Without names, of keys or node ids, all tests are stored. A BaselineError says
    what was written.
    """
    parts = [replace(run, tests=tuple(test for test in run.tests if test.profiles)) for run in runs]
    _check_names(names, [test for part in parts for test in part.tests])
    if names:
        parts = [
            replace(
                part,
                tests=tuple(
                    test for test in part.tests if test.key in names or test.nodeid in names
                ),
            )
            for part in parts
        ]
    wanted = [test for part in parts for test in part.tests]
    for test in wanted:
        check_environment(test)
    files = sorted({test.file for test in wanted})
    _check_files(files, rootdir)
    places = {
        file: replace(Place.of(file, rootdir, baseline_dir), keeps_times=keeps_times)
        for file in files
    }
    return record(
        {
            place: [
                replace(part, tests=tuple(test for test in part.tests if test.file == file))
                for part in parts
            ]
            for file, place in places.items()
        },
        only_new=False,
    )


def _check_files(files: Sequence[str], rootdir: Path) -> None:
    for file in files:
        if Path(file).suffix != ".py" or not lies_below(rootdir / file, rootdir):
            raise BaselineError(
                f"test file {elide(file, 200)!r}: a run file may name Python modules below the "
                f"rootdir {rootdir.resolve()} only; nothing was written"
            )
    for file in files:
        is_there = False
        with suppress(OSError):  # its name is longer than names can be
            is_there = (rootdir / file).is_file()
        if not is_there:
            raise BaselineError(
                f"no test file {one_line(file[:200])} in {rootdir.resolve()}: give the folder "
                "that the tests are below with --rootdir, or the tests to accept by name"
            )


def check_environment(test: ProfiledTest) -> None:
    """Raise a BaselineError if a test does not say where it ran, as in a file edited by hand."""
    if not {"platform", "machine", "setting"} <= test.environment.keys():
        raise BaselineError(
            f"{one_line(test.nodeid[:200])}: its run does not say on which platform and machine "
            "it ran; take a file of pytest --tfperf-report"
        )


def _check_names(names: Sequence[str], profiled: Sequence[ProfiledTest]) -> None:
    known = dict.fromkeys(name for test in profiled for name in (test.key, test.nodeid))
    for name in names:
        if name not in known:
            raise BaselineError(f"no profiled test {name!r} in these runs; {nearest(name, known)}")
    if not profiled:
        raise BaselineError("no test in these runs was profiled: there is nothing to accept")
