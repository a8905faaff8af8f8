"""Leave out the values that do not hold, whichever analysis they are from and when it ran."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tfperf.analysis.absent_ops import why_absent, without_absent, without_traced
from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.host.other_threads import without_elsewhere
from pytest_tfperf.analysis.host.remote_functions import without_remote
from pytest_tfperf.analysis.trace_errors import faults, without_incomplete, without_periods
from pytest_tfperf.values import Value


def valid(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Return the values, unknown where the evidence as a whole says that they do not hold."""
    incomplete = faults(evidence.trace) if evidence.trace else ()
    untimed = evidence.steps.why_untimed if evidence.trace else ""
    values = without_periods(without_traced(values, evidence.framework), untimed)
    values = without_absent(without_incomplete(values, incomplete), why_absent(evidence))
    return without_elsewhere(without_remote(values, evidence), evidence)
