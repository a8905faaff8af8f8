"""Try remedies of the steps of a test: as it asks, or where one of its checks fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.machine.locks import measuring_alone
from pytest_tfperf.plugin.profiled_item import ProfiledItem, fails
from pytest_tfperf.remedies.apart import (
    CALL,
    TrialProcesses,
    not_apart,
    remedies_of,
    try_here,
    why_not_apart,
)
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.results import Remedies
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Check
from pytest_tfperf.turns.children import Replay
from pytest_tfperf.values import REMEDIES

__tracebackhide__ = True

_OF_RUN = 10  # times as long as those of a test, the remedies of a run take at most
_SPENT: pytest.StashKey[list[float]] = pytest.StashKey()


def try_if_asked(test: ProfiledItem, name: str, call: Call) -> None:
    """Try remedies of the next profile, and end the test, if this process was started for that."""
    part = test.child.part if test.child is not None else None
    if test.child is not None and part and part.call == CALL and part.profile == name:
        try_here(test.child, call)


def tried(test: ProfiledItem, name: str, seconds: float) -> Remedies:
    """Try a profile's remedies for seconds, and add their table; CaptureError if none can be."""
    if name not in test.calls:
        raise CaptureError(
            "they are tried of tf_profile(step, data) with one step a call, and of Keras 3 with a "
            "tf.data.Dataset"
        )
    profile = test.results[name][0]
    framework = next(iter(test.frameworks)) if len(test.frameworks) == 1 else ""
    call = replace(test.calls[name], profile=profile, framework=framework)
    found = _found(test, name, call, seconds)
    test.add_table(name, REMEDIES, found.table())
    profile, limits = test.results[name]
    test.results[name] = replace(profile, advice=found.ordered(profile.advice)), limits
    test.tried[name] = found
    return found


def _found(test: ProfiledItem, name: str, call: Call, seconds: float) -> Remedies:
    """Return what remedies give in processes of their own, else in this one."""
    if test.trials is None:
        test.trials = test.replay(CALL)
    if isinstance(test.trials, Replay):
        answer = test.trials.earlier({test.trials.part.name: name})
        if answer is not None:
            return remedies_of(answer.found)
    why = _why_here(test)
    if why:
        found = try_remedies(call, seconds, test.announce, test.exclusive)
        note = f"{why}: tried in the process of the test, where nothing that hangs is stopped"
        return replace(
            found, tried=(*found.tried, *not_apart(call, why)), notes=(*found.notes, note)
        )
    if test.trials is None:
        # which a coordinator of both versions no longer does
        exclusive = partial(
            measuring_alone, patience_s=test.options.lock_timeout, waits_s=test.waits_s
        )
        test.trials = TrialProcesses(test.item, test.announce, exclusive)
    assert isinstance(test.trials, TrialProcesses)
    return test.trials(call, name, seconds)


def _why_here(test: ProfiledItem) -> str:
    """Return why remedies are tried in this process, else nothing."""
    if not test.is_of_pytest:
        return "there is no test of pytest that a process could run again"
    if test.child is not None and not test.is_decided:
        return "both versions take turns meanwhile"
    return why_not_apart()


def with_remedies(test: ProfiledItem, checks: Iterable[Check]) -> tuple[Check, ...]:
    """
    Return a test's checks; the first that fails of each profile tells what remedies gave, and with
    `--tfperf-try-all` those of its other profiles are tried too, for reports.
    """
    found = list(checks)
    if test.child is not None and not test.child.is_judged:
        return tuple(found)
    spent = test.item.config.stash.setdefault(_SPENT, [0.0])
    broken = dict.fromkeys(check.profile for check in found if fails(check, test.options))
    names = test.results if test.options.try_all else [one for one in test.results if one in broken]
    for name in list(names):
        told = _told(test, name, spent)
        index = next(
            (i for i, one in enumerate(found) if one.profile == name and fails(one, test.options)),
            None,
        )
        if index is not None:
            lines = tuple(("", line) for line in told)
            found[index] = replace(found[index], advice=(*found[index].advice, *lines))
    return tuple(found)


def _told(test: ProfiledItem, name: str, spent: list[float]) -> list[str]:
    """Return what the remedies of a profile gave, or why none was tried, as lines."""
    if name in test.tried:
        return test.tried[name].lines()
    seconds = min(test.options.try_seconds, _OF_RUN * test.options.try_seconds - spent[0])
    if seconds <= 0:
        return ["remedies were not tried: those of other tests took all the time of the run"]
    began = perf_counter()
    try:
        remedies = tried(test, name, seconds)
    except Exception as error:  # of the user's step or data: the test's verdict stands
        spent[0] += perf_counter() - began
        return [f"remedies could not be tried: {' '.join(str(error).split())}"]
    spent[0] += remedies.seconds
    return remedies.lines()
