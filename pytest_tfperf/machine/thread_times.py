"""Tell whether other threads of Python ran meanwhile: packages keep some that only wait."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path


def cpu_ns(threads: Collection[int | None]) -> dict[int | None, int | None]:
    """
    Return the CPU time so far of those of these threads of Python that live, by their `ident`.

    It is None where the system does not tell: only Linux does.
    """
    alive = (one for one in threading.enumerate() if one.ident in threads)
    return {one.ident: _cpu_ns(one.native_id) for one in alive}


def any_ran(before: Mapping[int | None, int | None]) -> bool:
    """Return whether a thread ran since `cpu_ns` returned this, or may have run."""
    now = cpu_ns(before)
    return any(spent is None or now.get(thread) != spent for thread, spent in before.items())


def _cpu_ns(native_id: int | None) -> int | None:
    try:
        text = Path(f"/proc/self/task/{native_id}/schedstat").read_text()
        return int(text.split()[0])  # nanoseconds on a CPU (Documentation/scheduler/sched-stats)
    except (OSError, ValueError, IndexError):
        return None
