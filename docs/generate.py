"""Write docs/metrics.md from the registry."""

from pathlib import Path

from pytest_tfperf.metrics import METRICS, Metric

HEAD = """# Metrics

Every row gives the marker arguments `max_<metric>` and `min_<metric>`; a count also `<metric>=`.

*Scope* says where a value holds: *program* on every machine, *platform* for a device kind and TensorFlow version, *machine*
on one class of machines (times). What the numbers mean and where they come from: [analysis.md](analysis.md). Rows marked ° are experimental
on GPUs: they hold on the traces at hand, none of which is of a recent NVIDIA GPU. This page is written by `docs/generate.py` from the
registry.

| metric | unit | better | scope | meaning |
|---|---|---|---|---|
"""


ON_GPUS = (
    "device_busy", "collective_time", "step_skew", "flops_utilization", "host_device_copies", "host_device_bytes", "kernel_launches",
    "tensor_core_time",
)  # fmt: skip


def row(metric: Metric) -> str:
    """One line of the table."""
    mark = "°" if metric.name in ON_GPUS else ""
    return f"| `{metric.name}`{mark} | {metric.unit} | {metric.better or '–'} | {metric.scope} | {metric.meaning} |\n"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(row, METRICS.values()))


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
