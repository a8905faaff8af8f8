"""Processes that profile nothing real: they load no capture and no analysis, a third of their start."""

import sys
from types import ModuleType, SimpleNamespace


def replace_modules():
    """Put empty modules in the place of those that import capture and analysis; call it before the plugin imports them."""
    _replace_module("pytest_tfperf.plugin.fixture", TfProfile=None)
    _replace_module("pytest_tfperf.plugin.profile_settings", Settings=SimpleNamespace)
    _replace_module(
        "pytest_tfperf.metrics.profile",
        so_far=lambda profile: profile,
        extended=lambda found, more: {**found, **more},
    )


def replace_variants():
    """Put an empty module in the place of the one that compares variants in processes, and loads NumPy."""
    _replace_module(
        "pytest_tfperf.variants.in_processes",
        compare_here=None,
        VariantProcesses=None,
        can_start_processes=lambda: False,
    )
    _replace_module("pytest_tfperf.variants.comparison", CompareInProcesses=None)


def _replace_module(name, **contents):
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
