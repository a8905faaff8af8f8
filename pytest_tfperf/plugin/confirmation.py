"""Confirmation of a possible regression by a second, fresh process of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.frameworks.in_use import takes_whole_gpus
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.text import headline
from pytest_tfperf.turns.children import Spec, children, test_key
from pytest_tfperf.turns.messages import Judged
from pytest_tfperf.turns.paired_test import run_paired_test
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.reports import last_lines, report_from
from pytest_tfperf.values import Unknown
from pytest_tfperf.variants.in_processes import can_start_processes


def profiled_again(
    item: pytest.Item, announce: Callable[[str], None], exclusive: Exclusive
) -> Mapping[str, Profile]:
    """
    Profile a test in a new process.

    Args:
        item: The test.
        announce: Called with what takes time.
        exclusive: Keeps other processes from measuring.

    Returns:
        Its profiles, by name.

    Raises:
        PairedError: If there can be no such process, or the test does not end there.
    """
    if not can_start_processes():
        raise PairedError("this system cannot stop processes")
    if takes_whole_gpus():
        raise PairedError(
            "TensorFlow gives this process all memory of the GPU; "
            "set TF_FORCE_GPU_ALLOW_GROWTH=true"
        )
    try:
        with exclusive(announce):
            announce("possible regression: re-measuring in a second process")
            return {profile.name: profile for profile in _profiles(item)}
    except CaptureError as error:
        raise PairedError(str(error)) from error
    finally:
        announce("")


def _profiles(item: pytest.Item) -> tuple[Profile, ...]:
    spec = Spec(who="the confirmation", changes={"pauses": False})
    with children(item, [spec]) as [child]:
        paired = run_paired_test(child, None, test_key(item), (None, None), lambda _: None)
        if paired.tree_profiles is None:
            raise PairedError(_why_not(item, child, paired.stopped))
        child.send(Judged(checks=None))
        child.next_event()
    return paired.tree_profiles


def _why_not(item: pytest.Item, child: ChildProcess, stopped: str | None) -> str:
    """Return why the test did not end."""
    reports: list[Any] = [report_from(item, data) for data in child.reports]
    bad = [report for report in reports if report.failed or report.skipped]
    text = last_lines(bad[0].longreprtext) if bad else f"  it stopped the run: {stopped}"
    return f"the test does not come to its end there:\n{text}"


def is_suspected(check: Check) -> bool:
    """Return whether a check is of a step time that is slower than the recorded ones."""
    return (check.kind, check.metric, check.verdict) == (
        "baseline",
        "step_time",
        Verdict.REGRESSION,
    )


def confirmed(check: Check, second: Check | Unknown) -> Check:
    """
    Confirm a suspected check: it stays a regression unless a second process is not slower.

    Args:
        check: The suspected check.
        second: The check of the same step time in the second process, or why there is none; then
            the check stands, and says so.
    """
    if isinstance(second, Unknown):
        return _unconfirmed(check, second.why)
    if "after" not in second.detail:
        return _unconfirmed(check, second.sentence)
    took = format_quantity(second.detail["after"], SECONDS)
    figures = {**check.detail, "second": second.detail["after"]}
    if is_suspected(second):
        same = check.with_details(("", f"confirmed in a second process: {took}"))
        return replace(same, detail=figures)
    is_good = second.verdict in (Verdict.PASS, Verdict.IMPROVED)
    which = "is no regression" if is_good else "does not decide it"
    return replace(
        check,
        verdict=Verdict.INCONCLUSIVE,
        sentence=f"{check.sentence}; but {took} in a second process, which {which}",
        details=(("", "processes of the same code differ as much here"),),
        advice=(("try", _HELP),),
        detail=figures,
    )


def _unconfirmed(check: Check, why: str) -> Check:
    first, excerpt = headline(f"could not be confirmed in a second process: {why}")
    return check.with_details(("", first), *excerpt)


_HELP = "pytest --tfperf-against REF, which compares in turns; or a quieter machine"
