"""Comparison of two run files, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from pytest_tfperf.baseline.compare_runs import profiles_by_key
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.differences.difference import most_telling
from pytest_tfperf.differences.profiles import differences, setting_differences
from pytest_tfperf.report.terminal import TextLine, render
from pytest_tfperf.report.trace_comparison import compared_metrics
from pytest_tfperf.results import FORMAT, Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.text import plural
from pytest_tfperf.values import Json

_FEW, _MANY = 5, 50  # differences of a profile without and with -v


def compared_runs_json(before: Run, after: Run, compared: Run) -> Json:
    """
    Return the comparison as JSON: `{"format", "before", "after", "tests"}`.

    `before` and `after` hold `created` and `commit`. A test has `nodeid`, `file`, `key`, `checks`,
    and of profiles in both runs `profiles`, `{name: metrics}` as in a comparison of traces, and
    `differences` of their traces, `{name: [{"what", "seconds"}]}`.

    Args:
        before: The first run.
        after: The second run.
        compared: The second run with the checks of the comparison.
    """
    old, new = profiles_by_key(before), profiles_by_key(after)
    pairs: dict[tuple[str, str], dict[str, tuple[Profile, Profile]]] = {}
    for file, test_key, name in (key for key in new if key in old):
        key = file, test_key, name
        pairs.setdefault((file, test_key), {})[name] = old[key][0], new[key][0]
    return {
        "format": FORMAT,
        "before": {"created": before.created, "commit": before.commit},
        "after": {"created": after.created, "commit": after.commit},
        "tests": [
            _test_json(test, pairs.get((test.file, test.key), {})) for test in compared.tests
        ],
    }


def _test_json(test: ProfiledTest, pairs: Mapping[str, tuple[Profile, Profile]]) -> Json:
    """Return a test as JSON, with its profiles in both runs."""
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
    """
    Render the comparison: both runs, the checks of the second one, and the differences of traces.

    Args:
        before: The first run.
        after: The second run.
        compared: The second run with the checks of the comparison.
        width: Columns of the terminal.
        verbose: Whether to show all checks, and more differences.
    """
    runs = [f"before: {_described(before)}", f"after: {_described(after)}"]
    head = [*runs, *_settings(before, after), ""]
    *shown, count = render(compared, width, int(verbose))
    found = _differences(before, after, _MANY if verbose else _FEW)
    return [*map(TextLine, head), *shown, *map(TextLine, found), count]


def _settings(before: Run, after: Run) -> list[str]:
    """List the differences between the settings of tests in both runs, each once."""
    old = {(test.file, test.key): test.environment.get("setting", {}) for test in before.tests}
    lines: dict[str, None] = {}
    for test in after.tests:
        setting = test.environment.get("setting", {})
        for one in setting_differences(old.get((test.file, test.key), {}), setting):
            lines[f"changed: {one.line}"] = None
    return list(lines)


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
