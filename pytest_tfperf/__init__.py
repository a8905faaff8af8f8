"""
pytest-tfperf: the performance of TensorFlow and JAX models, under test.

Names are imported when they are first used, so that `import pytest_tfperf` stays light. `__all__`
leaves out those that need NumPy or the packages of a store, so that `import *` stays light too.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, which would be imported for this alone
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfperf.capture.loop import Bracketed as Bracketed
    from pytest_tfperf.errors import (
        BaselineError,
        CaptureError,
        ExportError,
        LayoutError,
        LimitError,
        MetricError,
        PairedError,
        PytestTfperfDeprecationWarning,
        StoreError,
        TfperfError,
        TraceError,
        UnknownMetric,
    )
    from pytest_tfperf.metric_registry import Metric
    from pytest_tfperf.plugin.fixture import TfProfile as TfProfile
    from pytest_tfperf.plugin.loops import BracketedTrace as BracketedTrace
    from pytest_tfperf.plugin.registry import Registry
    from pytest_tfperf.remedies.results import Remedies as Remedies
    from pytest_tfperf.remedies.results import Tried as Tried
    from pytest_tfperf.report.remedies import RemedyRecord as RemedyRecord
    from pytest_tfperf.results import Profile, Verdict
    from pytest_tfperf.stats.signed_rank import Interval as Interval
    from pytest_tfperf.stores.traces import (
        AlignedRun as AlignedRun,
    )
    from pytest_tfperf.stores.traces import (
        FleetSummary as FleetSummary,
    )
    from pytest_tfperf.stores.traces import (
        analyze_traces as analyze_traces,
    )
    from pytest_tfperf.values import Advice, Column, Source, Step, Table, Value
    from pytest_tfperf.variants.comparison import Comparison as Comparison
    from pytest_tfperf.variants.comparison import Ratio as Ratio

__version__ = "0.2.0"
__all__ = [
    "Advice",
    "BaselineError",
    "CaptureError",
    "Column",
    "ExportError",
    "LayoutError",
    "LimitError",
    "Metric",
    "MetricError",
    "PairedError",
    "Profile",
    "PytestTfperfDeprecationWarning",
    "Registry",
    "Source",
    "Step",
    "StoreError",
    "Table",
    "TfperfError",
    "TraceError",
    "UnknownMetric",
    "Value",
    "Verdict",
]
_MODULES = {
    "Advice": "values",
    "AlignedRun": "stores.traces",
    "BaselineError": "errors",
    "Bracketed": "capture.loop",
    "BracketedTrace": "plugin.loops",
    "CaptureError": "errors",
    "Column": "values",
    "Comparison": "variants.comparison",
    "ExportError": "errors",
    "FleetSummary": "stores.traces",
    "Interval": "stats.signed_rank",
    "LayoutError": "errors",
    "LimitError": "errors",
    "Metric": "metric_registry",
    "MetricError": "errors",
    "PairedError": "errors",
    "Profile": "results",
    "PytestTfperfDeprecationWarning": "errors",
    "Ratio": "variants.comparison",
    "Registry": "plugin.registry",
    "Remedies": "remedies.results",
    "RemedyRecord": "report.remedies",
    "Source": "values",
    "Step": "values",
    "StoreError": "errors",
    "Table": "values",
    "TfProfile": "plugin.fixture",
    "TfperfError": "errors",
    "TraceError": "errors",
    "Tried": "remedies.results",
    "UnknownMetric": "errors",
    "Value": "values",
    "Verdict": "results",
    "analyze_traces": "stores.traces",
}


if not TYPE_CHECKING:  # type checkers know the names, and find misspelt ones

    def __getattr__(name: str) -> object:
        """Import one of the names in `_MODULES` (PEP 562)."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


if "pytest" in sys.modules:
    from importlib.machinery import ModuleSpec, PathFinder

    class _PlainImports:
        """
        Find this package's modules before pytest, which would rewrite the asserts of a plugin.

        It keeps what it rewrote only where Python may write bytecode. Elsewhere it compiles
        hundreds of modules in each run, which takes a second. An installed package has bytecode.
        """

        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
            """Return where a module of this package is; None for others."""
            return PathFinder.find_spec(name, path) if name.startswith(_WITHIN) else None

    _WITHIN = f"{__name__}."
    sys.meta_path.insert(0, _PlainImports)
