"""Analysis of thousands of traces by many workers, and limits for all of them."""

from pytest_tfperf.fleet.analyze import FleetSummary, analyze_traces
from pytest_tfperf.fleet.host_alignment import AlignedRun

__all__ = ["AlignedRun", "FleetSummary", "analyze_traces"]
