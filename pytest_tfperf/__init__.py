"""
pytest-tfperf: the performance of TensorFlow and JAX models, under test.

Names are imported when they are first used, so that `import pytest_tfperf` stays light.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, which would be imported for this alone
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfperf.errors import (
        PytestTfperfDeprecationWarning,
        TfperfError,
        UnknownMetric,
    )
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.registry import Registry
    from pytest_tfperf.results import Profile, Verdict
    from pytest_tfperf.values import Table, Value
    from pytest_tfperf.variants.comparison import Comparison

__version__ = "0.2.0"
__all__ = [
    "Comparison",
    "Profile",
    "PytestTfperfDeprecationWarning",
    "Registry",
    "Table",
    "TfProfile",
    "TfperfError",
    "UnknownMetric",
    "Value",
    "Verdict",
]
_MODULES = {
    "Comparison": "variants.comparison",
    "Profile": "results",
    "PytestTfperfDeprecationWarning": "errors",
    "Registry": "plugin.registry",
    "Table": "values",
    "TfProfile": "plugin.fixture",
    "TfperfError": "errors",
    "UnknownMetric": "errors",
    "Value": "values",
    "Verdict": "results",
}


if not TYPE_CHECKING:  # type checkers know the names, and find misspelt ones

    def __getattr__(name: str) -> object:
        """Import one of the names in `__all__` (PEP 562)."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
