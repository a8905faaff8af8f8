"""Comparisons of two traces and of two run files, as rows of text, lines and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import convert

from pytest_tfperf.baseline.compare_runs import Key, profiles_by_key
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.differences.difference import most_telling
from pytest_tfperf.differences.hlo_diff import hlo_diff
from pytest_tfperf.differences.profiles import differences, setting_differences
from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.executions import Program, programs_of_run
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metric_registry import shown_unit
from pytest_tfperf.metrics.multi_host import analyse_job
from pytest_tfperf.metrics.timing import TRACED_NOTE
from pytest_tfperf.quantities import format_alike, format_factor
from pytest_tfperf.report.run_text import TextLine, render
from pytest_tfperf.report.step_verdict import steps_title
from pytest_tfperf.report.text_table import TextTable, cell
from pytest_tfperf.results import FORMAT, Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import plural
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.values import Json, Table, builtin

_FEW, _MANY = 5, 50  # differences of a profile without and with -v


@dataclass(frozen=True, slots=True)
class ComparedTraces:
    """The comparison of two traces, which are the first hosts of their runs."""

    old: Profile
    new: Profile
    notes: Sequence[str]
    hlo: Mapping[str, Table]
    """Differences of the HLO by key, empty where one of both has none."""

    @property
    def titles(self) -> list[str]:
        """A line for each trace."""
        both = (("before", self.old), ("after", self.new))
        return [f"{label}: {one.name}: {steps_title(one)}" for label, one in both]

    @property
    def metrics(self) -> TextTable:
        """The metrics of both traces."""
        titles = ("metric", "before", "after", "ratio")
        rows = []
        for name, one in compared_metrics(self.old, self.new).items():
            before, after, ratio = (one[key] for key in titles[1:])
            unit = shown_unit(name, one["unit"])
            cells = (cell(before, unit), cell(after, unit))
            if before is not None and after is not None:
                cells = format_alike(before, after, unit)
            rows.append((name, *cells, "" if ratio is None else format_factor(ratio)))
        return TextTable.of(titles, rows, titles[1:], title="metrics of both traces")

    def to_json(self) -> Json:
        """Return names, `metrics`, `hlo` as `{key: table}`, and `notes`."""
        return {
            "format": FORMAT,
            "before": self.old.name,
            "after": self.new.name,
            "metrics": compared_metrics(self.old, self.new),
            "hlo": {key: asdict(table) for key, table in self.hlo.items()},
            "notes": list(self.notes),
        }


def compare_traces(before: Path, after: Path) -> ComparedTraces:
    """Compare two traces, or those of the first hosts in the newest runs of logdirs."""
    profiles: list[Profile] = []
    programs: list[list[Program]] = []
    notes = [TRACED_NOTE]
    for label, path in (("before", before), ("after", after)):
        traces = find_traces(path)
        analysed, errors = analyse_job(traces)
        if errors:
            raise errors[0]
        profiles.append(analysed[0].with_traced_times().plain())
        if len(analysed) > 1:
            notes.append(f"{label} is the first of {len(analysed)} hosts")
        try:
            programs.append([one for one in programs_of_run(traces) if one.runs is not None])
            why = "" if programs[-1] else f"the steps {label} ran no XLA executable"
        except TraceError as error:
            why = str(error)
        notes += [f"the HLO is not compared: {why}"] if why else []
    hlo: dict[str, Table] = {}
    if len(programs) == len(profiles) and all(programs):
        hlo = convert(plain_strings(builtin(hlo_diff(*programs))), dict[str, Table])
    old, new = profiles
    return ComparedTraces(old, new, notes, hlo)


def compared_metrics(old: Profile, new: Profile) -> Json:
    """Return `{name: {"unit", "before", "after", "ratio"}}` of metrics known in one or both."""
    return {
        name: {
            "unit": value.unit,
            "before": value.number,
            "after": (after := new.metrics[name].number),
            "ratio": after / value.number if value.number and after is not None else None,
        }
        for name, value in old.metrics.items()
        if name in new.metrics and (value.number, new.metrics[name].number) != (None, None)
    }


def compared_runs_json(before: Run, after: Run, compared: Run) -> Json:
    """Return both runs as JSON; `compared` is the second one with the checks of the comparison."""
    old = profiles_by_key(before)
    return {
        "format": FORMAT,
        "before": {"created": before.created, "commit": before.commit},
        "after": {"created": after.created, "commit": after.commit},
        "tests": [_test_json(test, old) for test in compared.tests],
    }


def _test_json(test: ProfiledTest, old: Mapping[Key, tuple[Profile, ProfiledTest]]) -> Json:
    """Return a test as JSON, with its profiles in both runs."""
    keys = {(test.file, test.key, profile.name): profile for profile in test.profiles}
    pairs = {key[2]: (old[key][0], profile) for key, profile in keys.items() if key in old}
    return {
        "nodeid": test.nodeid,
        "file": test.file,
        "key": test.key,
        "checks": [check.to_json() for check in test.checks],
        "profiles": {name: compared_metrics(*pair) for name, pair in pairs.items()},
        "differences": {
            name: [asdict(one) for one in differences(*pair)] for name, pair in pairs.items()
        },
    }


def render_compared_runs(
    before: Run, after: Run, compared: Run, width: int, verbose: bool
) -> list[TextLine]:
    """Render both runs, the checks of the second one, and what differs between traces."""
    runs = [f"before: {_described(before)}", f"after: {_described(after)}"]
    head = [*runs, *_settings(before, after), ""]
    *shown, count = render(compared, width, int(verbose))
    found = _differences(before, after, _MANY if verbose else _FEW)
    return [*map(TextLine, head), *shown, *map(TextLine, found), count]


def _settings(before: Run, after: Run) -> list[str]:
    """List the differences between the settings of tests in both runs, each once."""
    old = {(test.file, test.key): test.environment.get("setting", {}) for test in before.tests}
    settings = (
        (old.get((test.file, test.key), {}), test.environment.get("setting", {}))
        for test in after.tests
    )
    found = (one for both in settings for one in setting_differences(*both))
    return list(dict.fromkeys(f"changed: {one.line}" for one in found))


def _differences(before: Run, after: Run, most: int) -> Iterator[str]:
    """List the differences between the traces of profiles in both runs, at most `most` of each."""
    old = profiles_by_key(before)
    for key, (profile, test) in profiles_by_key(after).items():
        found = differences(old[key][0], profile) if key in old else ()
        if not found:
            continue
        hint = " (-v shows more)" if most == _FEW else ""
        counted = f", {most} of {len(found)}{hint}" if len(found) > most else ""
        yield f"{entry_key(test.key, profile.name)}: what differs between the traces{counted}"
        yield from (f"  {one.line}" for one in most_telling(found, most))


def _described(run: Run) -> str:
    failed = sum(test.outcome != "passed" for test in run.tests)
    facts = (
        plural(len(run.tests), "test"),
        f"{failed} of which did not pass" if failed else "",
        run.created,
        run.commit,
    )
    return ", ".join(filter(None, facts))
