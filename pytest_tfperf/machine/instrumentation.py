"""Whether Python is followed in this process, as coverage and debuggers do: that costs time of its own."""

from __future__ import annotations

import sys
from typing import Any


def is_traced() -> bool:
    """Whether somebody follows what Python does here: by sys.settrace or sys.setprofile, or as a tool of PEP 669 (Python 3.12)."""
    monitoring: Any = getattr(sys, "monitoring", None)
    kinds = () if monitoring is None else (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID)
    return bool(sys.gettrace() or sys.getprofile() or any(monitoring.get_tool(kind) for kind in kinds))
