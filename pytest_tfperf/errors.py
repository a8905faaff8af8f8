"""The errors a user of pytest-tfperf can meet; each says what was wanted, what was found, where, and what to do next."""

from __future__ import annotations


class TfperfError(Exception):
    """Base of every error that this package raises on purpose."""


class TraceError(TfperfError):
    """A trace file cannot be read as an XSpace, or holds no step."""


class CaptureError(TfperfError):
    """A step could not be profiled as it was asked for."""


class LimitError(TfperfError):
    """A limit, a marker argument or an ini value that cannot be understood."""


class UnknownMetric(TfperfError):
    """A metric was read that this profile could not measure; the message says why."""


class MetricError(TfperfError):
    """A metric of a project's own that cannot be added."""


class BaselineError(TfperfError):
    """A baseline file or folder that cannot be read or written."""


class ExportError(TfperfError):
    """A trace cannot be written in the format, or to the place, that was asked for."""


class LayoutError(TfperfError):
    """An XLA shape or layout that cannot be understood."""


class PairedError(TfperfError):
    """The working tree cannot be compared with the git ref that was asked for."""
