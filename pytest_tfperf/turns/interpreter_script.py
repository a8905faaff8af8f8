"""
Describe a Python and what it would load, as one line of JSON on stdout.

Runs as a script of its own in that Python: `PATH interpreter_script.py '["/entry"]'`. The argument
is a list of entries of sys.path that go before its own. Nothing but the plugin is imported, since
TensorFlow takes seconds.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

_MODULES = ("pytest", "tensorflow", "jax", "torch")


def main() -> None:
    """Print the description."""
    here = str(Path(__file__).resolve().parent)  # Python puts it first, unless it has -P
    own = [entry for entry in sys.path if entry and entry != here]
    sys.path[:] = [*json.loads(sys.argv[1]), *own]
    found = {
        "prefix": sys.prefix,
        "is_venv": sys.prefix != sys.base_prefix,
        "version": list(sys.version_info[:3]),
        "platform": f"{sys.platform} {platform.machine()}",
        "path": own,
        "packages": _packages(),
        "modules": [name for name in _MODULES if importlib.util.find_spec(name)],
        "protocol": _protocol(),
    }
    sys.stdout.write(f"{json.dumps(found)}\n")


def _packages() -> dict[str, str]:
    """
    Return the version of each distribution, and of `python`.

    Of two of one name, the first is imported.
    """
    packages = {"python": ".".join(map(str, sys.version_info[:3]))}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if name and one.version:  # a folder that a broken uninstall left has none
            packages.setdefault(re.sub("[-_.]+", "-", name).lower(), one.version)
    return packages


def _protocol() -> int | None:
    """Return the plugin's version of the messages between processes; None if there is no plugin."""
    if importlib.util.find_spec("pytest_tfperf") is None:
        return None
    try:
        from pytest_tfperf.turn import PROTOCOL
    except ImportError:
        return 0  # of a version before the first one that has a number
    return PROTOCOL


if __name__ == "__main__":
    main()
