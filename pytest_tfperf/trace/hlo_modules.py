"""The HLO modules in a trace's metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pytest_tfperf.hlo.decode import module_at, shape_at
from pytest_tfperf.hlo.module import Buffers, HloModule, Shape
from pytest_tfperf.protobuf import Record
from pytest_tfperf.trace.xspace import Plane, Trace, once

_PLANE = "/host:metadata"
_STAT = "Hlo Proto"
_HOST_MEMORY = 5  # Layout::kHostMemorySpace
_SIZE = 2  # BufferAllocationProto.size


def _protos(plane: Plane, name: str) -> Iterator[Record]:
    """
    Yield the HloProto of an executable; none for other metadata.

    Fields: XStat metadata_id = 1, bytes_value = 6.
    """
    for span in plane.metadata_stats[name]:
        stat = Record(plane.message, *span, "XStat")
        if plane.stat_names.get(stat.integer(1)) == _STAT:
            yield from stat.records(6, "HloProto")


def _module_span(plane: Plane, name: str) -> tuple[int, int] | None:
    """Find the bytes of an executable's module: HloProto hlo_module = 1. None without one."""
    return next((span for proto in _protos(plane, name) for span in proto.spans(1)), None)


@once
def _decoded(_: Plane) -> dict[str, HloModule]:
    """Make a memory for the modules of a plane, each of which is decoded once."""
    return {}


def _buffers(allocations: Sequence[Record]) -> Buffers:
    """
    Sum allocations by purpose.

    BufferAllocationProto: is_thread_local = 3, is_entry_computation_parameter = 5, maybe_live_out =
    7, is_constant = 12. All others are temporary: BufferAllocation::IsPreallocatedTempBuffer
    (xla/service/buffer_assignment.h).
    """

    def total(*fields: int) -> int:
        return sum(part.integer(_SIZE) for part in allocations if any(map(part.integer, fields)))

    return Buffers(
        total(5), total(7), sum(part.integer(_SIZE) for part in allocations) - total(3, 5, 7, 12)
    )


def _assignments(plane: Plane, name: str) -> Iterator[Record]:
    """Yield the buffer assignment of an executable: HloProto buffer_assignment = 3."""
    for proto in _protos(plane, name):
        yield from proto.records(3, "BufferAssignmentProto")


def _allocations(assignment: Record) -> Iterator[Record]:
    """
    Yield the allocations of a buffer assignment in the device's memory.

    Fields: BufferAssignmentProto buffer_allocations = 3 → size = 2, color = 8 (the memory space).
    Allocations in the host's memory (space 5, xla/layout.h) take no device memory.
    """
    for part in assignment.records(3, "BufferAllocationProto"):
        if part.integer(8) != _HOST_MEMORY:
            yield part


def modules_of(trace: Trace, names: Collection[str] | None = None) -> dict[str, HloModule]:
    """Return the optimised modules of a trace by name, `module(program id)`."""
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    wanted = (
        plane.metadata_stats
        if names is None
        else [name for name in plane.metadata_stats if name in names]
    )
    known = _decoded(plane)
    for name in wanted:
        if name not in known and (span := _module_span(plane, name)):
            known[name] = module_at(plane.message, *span)
    return {name: known[name] for name in wanted if name in known}


def live_modules(trace: Trace) -> frozenset[str]:
    """
    Return the names of all executables alive in the process when the trace ended.

    Each name ends in its unique `(program_id)`. They are the event metadata of the plane
    `/host:metadata`, also for executables compiled while no profiler ran.
    """
    plane = trace.plane(_PLANE)
    return frozenset(plane.metadata_stats) if plane else frozenset()


def buffer_bytes(trace: Trace) -> dict[str, int]:
    """
    Return the bytes that each executable needs by name, from XLA's buffer assignment.

    They are those of parameters, results and temporaries.
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    return {
        name: sum(
            part.integer(_SIZE)
            for assignment in _assignments(plane, name)
            for part in _allocations(assignment)
        )
        for name in plane.metadata_stats
    }


def buffer_sizes(trace: Trace) -> dict[str, Buffers]:
    """Return the buffers of each executable by name, if it has any."""
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    parts = {
        name: [part for one in _assignments(plane, name) for part in _allocations(one)]
        for name in plane.metadata_stats
    }
    return {name: _buffers(found) for name, found in parts.items() if found}


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """An array in XLA's plan of an executable."""

    role: str
    """`argument`, `result` or `temporary`; what is updated in place is an argument."""
    size: int
    """Its bytes."""
    instruction: int
    """Id of the instruction that makes it."""


def planned_buffers(trace: Trace, name: str) -> list[PlannedBuffer]:
    """
    Return the arrays of an executable that lie side by side in its plan.

    Of those that share memory one after the other it is the largest. Of equal ones it is the first,
    or the program's result.

    Fields: BufferAssignmentProto logical_buffers = 1 (id = 1, defined_at = 3 → instruction_id =
    4), buffer_allocations = 3 (assigned = 9 → logical_buffer_id = 1, offset = 2, size = 3).
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return []
    found = []
    for assignment in _assignments(plane, name):
        made_by = {
            buffer.integer(1): buffer.record(3, "Location").integer(4)
            for buffer in assignment.records(1, "LogicalBufferProto")
        }
        for part in _allocations(assignment):
            if part.integer(3) or part.integer(12):
                continue
            role = "argument" if part.integer(5) else "result" if part.integer(7) else "temporary"
            order = -1 if role == "result" else 1  # the last value is the result
            held = [
                (-one.integer(3), order * one.integer(1), one.integer(2), one.integer(1))
                for one in part.records(9, "Assigned")
            ]
            taken: list[tuple[int, int]] = []
            for size, _, begin, buffer in sorted(held):
                end = begin - size
                if all(end <= other[0] or begin >= other[1] for other in taken):
                    taken.append((begin, end))
                    found.append(PlannedBuffer(role, end - begin, made_by.get(buffer, 0)))
    return found


def argument_shapes(trace: Trace, names: Collection[str]) -> dict[str, tuple[Shape, ...]]:
    """
    Return the argument shapes of executables by name, in XLA's order, if the trace has them.

    Fields: HloModuleProto host_program_shape = 4 → ProgramShapeProto parameters = 1.
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    found = {}
    for name in plane.metadata_stats:
        if name in names and (span := _module_span(plane, name)):
            module = Record(plane.message, *span, "HloModuleProto")
            if 4 in module:
                parameters = module.record(4, "ProgramShapeProto").spans(1)
                found[name] = tuple(shape_at(plane.message, *part) for part in parameters)
    return found
