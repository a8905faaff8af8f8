"""Counts of a run's checks, as the terminal, Markdown and HTML reports show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_tfperf.results import DECIDED, Check, Verdict
from pytest_tfperf.text import plural

_FAILED = frozenset({Verdict.FAIL, Verdict.REGRESSION})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """Numbers of checks."""

    decided: int
    """Checks with a decision."""
    failed: int
    """Checks that failed."""
    undecided: int
    """Checks without a decision."""

    @classmethod
    def of(cls, checks: Iterable[Check]) -> CheckCounts:
        """Count checks by their verdicts."""
        verdicts = [check.verdict for check in checks]
        decided = sum(verdict in DECIDED for verdict in verdicts)
        failed = sum(verdict in _FAILED for verdict in verdicts)
        return cls(decided=decided, failed=failed, undecided=len(verdicts) - decided)

    def __str__(self) -> str:
        """`39 checks passed, 2 failed, 3 not decided`."""
        text = f"{plural(self.decided - self.failed, 'check')} passed"
        if self.failed:
            text = f"{text}, {self.failed} failed"
        return f"{text}, {self.undecided} not decided" if self.undecided else text
