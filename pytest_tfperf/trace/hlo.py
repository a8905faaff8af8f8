"""XLA executables in a trace: the HloProto messages of its metadata. Field numbers: xla/service/hlo.proto (openxla/xla)."""

from __future__ import annotations

from pytest_tfperf.trace.wire import Message
from pytest_tfperf.trace.xspace import Trace


def buffer_bytes(trace: Trace) -> dict[str, int]:
    """Bytes that each executable needs, by name: parameters, results and temporaries, as XLA's buffer assignment lays them out."""
    plane = trace.plane("/host:metadata")
    if plane is None:
        return {}
    return {name: sum(_allocations(plane.message, *stat) for stat in stats) for name, stats in plane.metadata_stats.items()}


def _allocations(message: Message, begin: int, end: int) -> int:
    """XStat bytes_value = 6 → HloProto buffer_assignment = 3 → buffer_allocations = 3 → size = 2."""
    total = 0
    for stat in message.inside(begin, end, 6):
        for assignment in message.inside(*stat, 3):
            for allocation in message.inside(*assignment, 3):
                total += sum(v for n, wire, v, _ in message.fields(*allocation, "BufferAllocationProto") if (n, wire) == (2, 0))
    return total
