"""Write pytest_tfperf/metric_properties.py from the registry: typed attributes of a profile."""

from pathlib import Path

from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.quantities import COUNT

TARGET = Path(__file__).parent.parent / "pytest_tfperf" / "metric_properties.py"
HEAD = '''"""
Metrics of a profile as typed attributes, so that type checkers find misspelt names.

`docs/generate_properties.py` writes this module from the registry.
"""

from __future__ import annotations

__tracebackhide__ = True


class MetricProperties:
    """Attributes for all built-in metrics; each raises `UnknownMetric` if its metric is unknown."""

    __slots__ = ()

    def _number(self, metric: str) -> float:
        """Return the number of a metric; `Profile` implements it."""
        raise NotImplementedError

    def _count(self, metric: str) -> int:
        """Return the number of a metric that counts something; `Profile` implements it."""
        raise NotImplementedError
'''


def meaning(metric: Metric) -> str:
    """First sentence of a property's docstring: the meaning, and the unit unless it is a count."""
    first, _, rest = metric.meaning.partition(" ")
    first = f"`{first}`" if first in METRICS else first[0].upper() + first[1:]
    unit = "" if metric.unit == COUNT else f" ({metric.unit})"
    return f"{first} {rest}{unit}."


def attribute(metric: Metric) -> str:
    """Write the property of a metric."""
    kind, reader = ("int", "_count") if metric.unit == COUNT else ("float", "_number")
    return (
        f"\n    @property\n    def {metric.name}(self) -> {kind}:\n"
        f'        """{meaning(metric)}"""\n'
        f'        return self.{reader}("{metric.name}")\n'
    )


def module() -> str:
    """Write the module."""
    return HEAD + "".join(map(attribute, METRICS.values()))


if __name__ == "__main__":
    TARGET.write_text(module(), encoding="utf-8")
