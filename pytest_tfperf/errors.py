"""
Errors and warnings for users of pytest-tfperf.

A message says what was found, what was wanted, where, and what to do next.
"""

from __future__ import annotations


class TfperfError(Exception):
    """Base of every error that this package raises on purpose."""


class TraceError(TfperfError):
    """A trace file that is not a readable XSpace, or holds no step."""


class CaptureError(TfperfError):
    """A step that could not be profiled."""


class LimitError(TfperfError):
    """A limit, a marker argument or an ini value that cannot be understood."""


class UnknownMetric(TfperfError):
    """A metric that a profile could not measure; the message says why."""


class MetricError(TfperfError):
    """A custom metric that cannot be added."""


class BaselineError(TfperfError):
    """A baseline file or folder that cannot be read or written."""


class ExportError(TfperfError):
    """A trace that cannot be written in the requested format or to the requested file."""


class LayoutError(TfperfError):
    """An XLA shape or layout that cannot be understood."""


class PairedError(TfperfError):
    """A comparison of the working tree with a git ref that is impossible."""


class StoreError(TfperfError):
    """
    A history, a store of traces, their traces or workers that cannot be reached.

    The message names the store without a password.
    """


class PytestTfperfDeprecationWarning(DeprecationWarning):
    """
    The use of a name that a later version removes; the message says what replaces it, and when.

    pytest shows warnings of this base class by default, and this module need not import pytest.
    """
