"""
A step time that is slower than those recorded, held against that of a second process.

Two processes of the same code may differ for as long as they live, now and then by far more than runs usually do; so the process is
what is replicated before an alarm (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013).
"""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.metrics import SECONDS, format_quantity
from pytest_tfperf.results import Check, Verdict


def is_suspected(check: Check) -> bool:
    """Whether a check is of a step time that is slower than those recorded."""
    return (check.kind, check.metric, check.verdict) == ("baseline", "step_time", Verdict.REGRESSION)


def confirmed(check: Check, second: Check | str) -> Check:
    """
    What stands of a suspected check: it stays a regression unless a second process is not slower.

    Args:
        second: The check of the same step time in the second process; or why there is none, which is said and changes nothing.
    """
    if isinstance(second, str):
        return check.adding([f"no second process could say the same: {second}"])
    if "after" not in second.detail:
        return check.adding([f"no second process could say the same: {second.message}"])
    took = format_quantity(second.detail["after"], SECONDS)
    told = {**check.detail, "second": second.detail["after"]}
    if is_suspected(second):
        return replace(check.adding([f"a second, fresh process says the same: {took}"]), detail=told)
    sentence = f"{check.message.splitlines()[0]}; but {took} in a second, fresh process, which is no regression"
    message = f"{sentence}\n  processes of the same code differ as much here\n  try: {_HELPS}"
    return replace(check, verdict=Verdict.INCONCLUSIVE, message=message, detail=told)


_HELPS = "pytest --tfperf-against REF, which compares in turns; or a quieter machine"
