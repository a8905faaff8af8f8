"""Two run files side by side: the second one's tests, with what became of the first one's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from pytest_tfperf.analysis.differences.difference import most_telling
from pytest_tfperf.analysis.differences.profile_differences import differences, setting_differences
from pytest_tfperf.baseline.compare_runs import profiles_by_key
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.report.terminal import TextLine, render
from pytest_tfperf.report.trace_comparison import compared_metrics
from pytest_tfperf.results import FORMAT, Run
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

_FEW, _MANY = 5, 50  # differences of a profile without and with -v


def compared_runs_json(before: Run, after: Run, compared: Run) -> Json:
    """
    `{"format", "before", "after", "tests": [{"nodeid", "file", "key", "checks", "profiles": {name: metrics}, "differences"}]}`.

    `before` and `after` hold `created` and `commit`; the metrics are those of `tfperf compare` of traces, of profiles in both runs;
    `differences` are those of their traces, `{name: [{"what", "seconds"}]}`.
    """
    old, new = profiles_by_key(before), profiles_by_key(after)
    tests = [
        {
            "nodeid": test.nodeid,
            "file": test.file,
            "key": test.key,
            "checks": [check.to_json() for check in test.checks],
            "profiles": {name: compared_metrics(*pair) for name, pair in both.items()},
            "differences": {
                name: [asdict(one) for one in differences(*pair)] for name, pair in both.items()
            },
        }
        for test in compared.tests
        for both in [
            {
                key[2]: (old[key][0], new[key][0])
                for key in new
                if key[:2] == (test.file, test.key) and key in old
            }
        ]
    ]
    sides = {
        name: {"created": run.created, "commit": run.commit}
        for name, run in (("before", before), ("after", after))
    }
    return {"format": FORMAT, **sides, "tests": tests}


def render_compared_runs(
    before: Run, after: Run, compared: Run, width: int, verbose: bool
) -> list[TextLine]:
    """What both runs are and what differs in their settings; the second as pytest shows it, with the checks of the comparison; and why."""
    sides = [f"{name}: {_described(run)}" for name, run in (("before", before), ("after", after))]
    *shown, count = render(compared, width, int(verbose))
    lines = (
        [*sides, *_settings(before, after), ""],
        _differences(before, after, _MANY if verbose else _FEW),
    )
    return [*map(TextLine, lines[0]), *shown, *map(TextLine, lines[1]), count]


def _settings(before: Run, after: Run) -> list[str]:
    """What differs in the settings of tests in both runs, each once."""
    old = {(test.file, test.key): test for test in before.tests}
    pairs = [
        (old[test.file, test.key], test) for test in after.tests if (test.file, test.key) in old
    ]
    settings = [tuple(test.environment.get("setting", {}) for test in pair) for pair in pairs]
    return list(
        dict.fromkeys(
            f"changed: {one.line}"
            for then, now in settings
            for one in setting_differences(then, now)
        )
    )


def _differences(before: Run, after: Run, most: int) -> Iterator[str]:
    """So many lines at most of what differs between the traces of each profile in both runs."""
    old = profiles_by_key(before)
    for key, (profile, test) in profiles_by_key(after).items():
        found = differences(old[key][0], profile) if key in old else ()
        if found:
            more = (
                f", {most} of {len(found)}{' (-v shows more)' * (most == _FEW)}"
                if len(found) > most
                else ""
            )
            yield f"{entry_key(test.key, profile.name)}: what differs between the traces{more}"
            yield from (f"  {one.line}" for one in most_telling(found, most))


def _described(run: Run) -> str:
    tests = plural(len(run.tests), "test")
    failed = sum(test.outcome != "passed" for test in run.tests)
    return ", ".join(
        filter(
            None,
            (
                f"{tests}{f', {failed} of which did not pass' * bool(failed)}",
                run.created,
                run.commit,
            ),
        )
    )
