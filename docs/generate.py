"""Write docs/metrics.md from the registry."""

from pathlib import Path

from pytest_tfperf.metrics import METRICS, Metric

HEAD = """# Metrics

Every row gives the marker arguments `max_<metric>` and `min_<metric>`; a count also `<metric>=`.

*Scope* says where a value holds: *program* on every machine, *platform* for a device kind and TensorFlow version, *machine*
on one class of machines (times). This page is written by `docs/generate.py` from the registry.

| metric | unit | better | scope | meaning |
|---|---|---|---|---|
"""


def row(metric: Metric) -> str:
    """One line of the table."""
    return f"| `{metric.name}` | {metric.unit} | {metric.better or '–'} | {metric.scope} | {metric.meaning} |\n"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(row, METRICS.values()))


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
