"""Names under which this package registers plugin objects with pytest, and their typed lookup."""

from __future__ import annotations

from typing import TypeVar

import pytest

CONTROLLER = "tfperf-controller"
"""Collects the results of a run, and writes its summary and reports."""
COORDINATOR = "tfperf-coordinator"
"""Runs the tests of a paired run in child processes."""
CHILD_SERVER = "tfperf-child"
"""Serves the parent of a child process."""
SILENCE = "tfperf-silence"
"""Silences the terminal's reporter of a child process."""

PluginType = TypeVar("PluginType")


def registered(config: pytest.Config, name: str, kind: type[PluginType]) -> PluginType | None:
    """
    Return a plugin object, or None if there is none of this class.

    Args:
        config: The run's configuration.
        name: Name of the plugin object.
        kind: Its class.
    """
    plugin = config.pluginmanager.get_plugin(name)
    return plugin if isinstance(plugin, kind) else None
