"""Processes that profile nothing real: they load no capture and no analysis, a third of their start."""

import sys
from types import ModuleType


def replace_modules(profiler):
    """Put this profiler in the place of `TfProfile`, and an empty module in that of others which import analysis; call it before the plugin imports them."""
    _replace_module("pytest_tfperf.plugin.fixture", TfProfile=profiler)
    _replace_module(
        "pytest_tfperf.metrics.profile",
        so_far=lambda profile: profile,
        extended=lambda found, more: {**found, **more},
    )


def _replace_module(name, **contents):
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
