"""The message of a test that failed for its performance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_tfperf.checks.roots import causes
from pytest_tfperf.results import DECIDED, Check


def failure_message(test: str, checks: Iterable[Check]) -> str:
    """Write the checks that failed a test: a headline, where, what to do, then other causes."""
    first, *others = causes(checks)
    said: set[str] = set()
    lines = [failure_headline(test, first), *_below(first, said)]
    for check in others:
        numbered = f"{test}/{check.profile}" if check.profile.isdecimal() else check.profile
        sentence = f"not decided: {check.sentence}" if _is_open(check) else check.sentence
        lines += [f"{numbered}: {sentence}" if numbered else sentence]
        lines += _below(check, said)
    return "\n".join(lines)


def failure_headline(test: str, check: Check) -> str:
    """Return one sentence on a check, with its test: `test_fit is 8.3 % slower than HEAD: …`."""
    subject = f"{test}/{check.profile}" if check.profile else test
    if _is_open(check):
        return f"{subject} is not decided: {check.sentence}"
    if check.is_of_step_time and check.sentence.startswith(_STEP_TIME_IS):
        return f"{subject} is {check.sentence.removeprefix(_STEP_TIME_IS)}"
    return f"{subject}: {check.sentence}"


def _is_open(check: Check) -> bool:
    """Return whether a check is of a time of the step that is not decided."""
    return check.is_of_step_time and check.verdict not in DECIDED


def _below(check: Check, said: set[str]) -> Iterator[str]:
    """Yield the lines below a sentence, and none for a second time."""
    for line in check.lines:
        if line not in said:
            yield f"  {line}"
    said.update(check.lines)


_STEP_TIME_IS = "step_time is "
