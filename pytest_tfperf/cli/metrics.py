"""The command `tfperf metrics`, which explains the metrics."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_tfperf.cli.common import GOOD, add_command, json_text
from pytest_tfperf.cli.terminal import Line, labelled, laid_out, line, this_screen, write_out
from pytest_tfperf.errors import LimitError
from pytest_tfperf.gates import ANY, MOVED, NEVER, RISE, WORSE, gate_of
from pytest_tfperf.metric_evidence import EVIDENCE
from pytest_tfperf.metric_registry import MACHINE, METRICS, PLATFORM, PROGRAM, Metric, nearest
from pytest_tfperf.quantities import BYTES, COUNT, FLOP, RATE, RATIO, SECONDS, SHARE
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.results import FORMAT
from pytest_tfperf.values import Json, builtin

_CUSTOM = "Custom metrics are known in their own project only: pytest --markers lists them there."
_UNITS = {SECONDS: "seconds", SHARE: "share", FLOP: "FLOP"}
_EXAMPLES = {
    SECONDS: "20ms",
    RATE: "1000",
    SHARE: "5%",
    RATIO: "5%",
    COUNT: "0",
    BYTES: "1.5GiB",
    FLOP: "1e9",
}
_SCOPES = {
    PROGRAM: "program: the same on every machine",
    PLATFORM: "platform: the same for a kind of device and a version of the framework",
    MACHINE: "machine: comparable within one class of machines",
}
_EXPLAINED_GATES = {
    ANY: "any change against a baseline",
    WORSE: "a change for the worse against a baseline",
    RISE: "a rise against a baseline",
    MOVED: "a fall against a baseline where ops that XLA compiled now run outside it",
    NEVER: "no change against a baseline",
}
_MORE = "https://pytest-tfperf.github.io/pytest-tfperf/reference/metrics.html"
_GATE = "Gate: the change against a baseline or a git ref that fails a test."


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    metrics = add_command(
        commands,
        "metrics",
        _metrics,
        "list the metrics, or explain one",
        (
            "List every metric with its unit, meaning and scope, and the changes against a "
            "baseline that fail a test. Or explain one: what makes it known, and its limits. Exit "
            "status 2 if there is no such metric."
        ),
        "input_bound",
    )
    metrics.add_argument("name", nargs="?", metavar="NAME", help="metric to explain")
    metrics.add_argument("--json", action="store_true", help="print one JSON object instead")


def _metrics(options: argparse.Namespace) -> int:
    chosen = list(METRICS.values()) if options.name is None else [_metric(options.name)]
    if options.json:
        print(json_text({"format": FORMAT, "metrics": [_metric_json(one) for one in chosen]}))
    elif options.name is None:
        write_out(*_list_view(chosen), "", line((f"{_GATE}\n{_CUSTOM}", "dim")))
    else:
        write_out(*_metric_view(chosen[0]))
    return GOOD


def _metric(name: str) -> Metric:
    """Return the metric of a name, in which a hyphen stands for an underscore too."""
    key = name.replace("-", "_")
    if key not in METRICS:
        raise LimitError(f"no metric {name!r}; {nearest(key, METRICS)}\n  {_CUSTOM}")
    return METRICS[key]


def _metric_json(metric: Metric) -> Json:
    gate = gate_of(metric)
    fails = {
        "change": gate.change,
        "beyond": gate.bounds("and") or None,
        "unless": gate.unless or None,
        "why": gate.why,
    }
    return {**builtin(metric), "fails": fails, "evidence": EVIDENCE[metric.name].known_from}


def _list_view(metrics: Sequence[Metric]) -> Iterator[str | Line]:
    titles = ("metric", "unit", "meaning", "scope", "gate")
    rows = [
        (
            metric.name,
            _UNITS.get(metric.unit, metric.shown_unit),
            metric.meaning,
            metric.scope,
            gate_of(metric).change,
        )
        for metric in metrics
    ]
    return laid_out(TextTable(titles, rows, [False] * len(titles)), this_screen().width)


def _metric_view(metric: Metric) -> Iterator[str | Line]:
    gate, flag = gate_of(metric), metric.name.replace("_", "-")
    relation = "min" if metric.better == "higher" else "max"
    example = _EXAMPLES[metric.unit]
    written = example if metric.unit in (COUNT, RATE, FLOP) else f'"{example}"'
    unless = f", unless {gate.unless} changed too" if gate.unless else ""
    beyond = f" of more than {bounds}" if (bounds := gate.bounds("and")) else ""
    yield line((metric.name, "bold"), f": {metric.meaning}")
    yield from labelled(
        [
            ("  unit:", _UNITS.get(metric.unit, metric.shown_unit)),
            ("  better:", metric.better or "neither higher nor lower"),
            ("  scope:", _SCOPES[metric.scope]),
            ("  fails a test:", f"{_EXPLAINED_GATES[gate.change]}{beyond}{unless}: {gate.why}"),
            ("  known from:", EVIDENCE[metric.name].known_from.replace("`", "")),
            ("  limit:", f"@pytest.mark.tfperf({relation}_{metric.name}={written})"),
            ("  of a trace:", f"tfperf check TRACE --{relation}-{flag} {example}"),
            ("  more:", _MORE),
        ]
    )
