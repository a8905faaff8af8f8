"""The HLO modules in a trace's metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.hlo.collective_ops import Participants, participants_at
from pytest_tfperf.hlo.decode import module_at, shape_at
from pytest_tfperf.hlo.module import (
    Buffers,
    HloModule,
    Shape,
)
from pytest_tfperf.protobuf import VARINT
from pytest_tfperf.trace.xspace import Plane, Trace

_PLANE = "/host:metadata"
_STAT = "Hlo Proto"
_HOST_MEMORY = 5  # Layout::kHostMemorySpace
_SIZE = 2  # BufferAllocationProto.size


def _module_span(plane: Plane, name: str) -> tuple[int, int] | None:
    """
    Find the bytes of an executable's module; None for other metadata.

    Fields: XStat metadata_id = 1, bytes_value = 6 → HloProto hlo_module = 1.
    """
    message = plane.message
    for stat in plane.metadata_stats[name]:
        keys = [
            value
            for number, wire, value, _ in message.fields(*stat, "XStat")
            if (number, wire) == (1, 0)
        ]
        if keys and plane.stat_names.get(message.signed(keys[-1])) == _STAT:
            for proto in message.inside(*stat, 6):
                for module in message.inside(*proto, 1):
                    return module
    return None


def _buffers(allocations: Sequence[Mapping[int, int]]) -> Buffers:
    """
    Sum allocations by purpose.

    BufferAllocationProto: is_thread_local = 3, is_entry_computation_parameter = 5, maybe_live_out =
    7, is_constant = 12. All others are temporary: BufferAllocation::IsPreallocatedTempBuffer
    (xla/service/buffer_assignment.h).
    """

    def total(*fields: int) -> int:
        return sum(
            part[_SIZE] for part in allocations if any(part.get(number) for number in fields)
        )

    return Buffers(
        total(5), total(7), sum(part[_SIZE] for part in allocations) - total(3, 5, 7, 12)
    )


def _allocations(plane: Plane, name: str) -> Iterator[dict[int, int]]:
    """
    Yield the numbers of each allocation of an executable by field, with its size.

    Fields: XStat bytes_value = 6 → HloProto buffer_assignment = 3 → buffer_allocations = 3 → size =
    2, color = 8 (the memory space). Allocations in the host's memory (space 5, xla/layout.h) take
    no device memory and are left out.
    """
    message = plane.message
    protos = (proto for stat in plane.metadata_stats[name] for proto in message.inside(*stat, 6))
    assignments = (assignment for proto in protos for assignment in message.inside(*proto, 3))
    for span in (span for assignment in assignments for span in message.inside(*assignment, 3)):
        numbers = {
            number: value
            for number, wire, value, _ in message.fields(*span, "BufferAllocationProto")
            if wire == VARINT
        }
        if numbers.get(8, 0) != _HOST_MEMORY:
            yield {_SIZE: 0} | numbers


def modules_of(trace: Trace, names: Collection[str] | None = None) -> dict[str, HloModule]:
    """
    Return the optimised modules of a trace by name, `module(program id)`.

    Args:
        trace: The trace.
        names: Names of the modules to decode; all by default.

    Raises:
        TraceError: If one of them is damaged.
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    wanted = (
        plane.metadata_stats
        if names is None
        else [name for name in plane.metadata_stats if name in names]
    )
    spans = {name: _module_span(plane, name) for name in wanted}
    return {name: module_at(plane.message, *span) for name, span in spans.items() if span}


def participants_of(trace: Trace, functions: Collection[str]) -> dict[str, list[Participants]]:
    """
    Return the collectives and devices of programs by function, `module` without its program id.

    Several programs may have one function's name.

    Args:
        trace: The trace.
        functions: Names of the functions.

    Raises:
        TraceError: If one of the programs is damaged.
    """
    plane = trace.plane(_PLANE)
    found: dict[str, list[Participants]] = {}
    for name in plane.metadata_stats if plane and functions else ():
        function = name.partition("(")[0]
        span = _module_span(plane, name) if plane and function in functions else None
        if plane and span:
            found.setdefault(function, []).append(participants_at(plane.message, *span))
    return found


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
        name: sum(part[_SIZE] for part in _allocations(plane, name))
        for name in plane.metadata_stats
    }


def buffer_sizes(trace: Trace) -> dict[str, Buffers]:
    """Return the buffers of each executable by name, if it has any."""
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    parts = {name: list(_allocations(plane, name)) for name in plane.metadata_stats}
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

    Fields: HloProto buffer_assignment = 3 → logical_buffers = 1 (id = 1, defined_at = 3 →
    instruction_id = 4), buffer_allocations = 3 (assigned = 9 → logical_buffer_id = 1, offset = 2,
    size = 3).
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return []
    message, found = plane.message, []

    def numbers(span: tuple[int, int], where: str) -> dict[int, int]:
        fields = message.fields(*span, where)
        return {number: value for number, wire, value, _ in fields if wire == VARINT}

    protos = (proto for stat in plane.metadata_stats[name] for proto in message.inside(*stat, 6))
    for assignment in (span for proto in protos for span in message.inside(*proto, 3)):
        made_by = {}
        for span in message.inside(*assignment, 1):
            for place in message.inside(*span, 3):
                key = numbers(span, "LogicalBufferProto").get(1, 0)
                made_by[key] = numbers(place, "Location").get(4, 0)
        for span in message.inside(*assignment, 3):
            part = numbers(span, "BufferAllocationProto")
            if part.get(8) == _HOST_MEMORY or part.get(3) or part.get(12):
                continue
            role = "argument" if part.get(5) else "result" if part.get(7) else "temporary"
            held = [numbers(one, "Assigned") for one in message.inside(*span, 9)]
            order = -1 if role == "result" else 1  # the last value is the result
            held.sort(key=lambda one: (-one.get(3, 0), order * one.get(1, 0)))
            taken: list[tuple[int, int]] = []
            for one in held:
                begin, end = one.get(2, 0), one.get(2, 0) + one.get(3, 0)
                if all(end <= other[0] or begin >= other[1] for other in taken):
                    taken.append((begin, end))
                    found.append(PlannedBuffer(role, end - begin, made_by.get(one.get(1, 0), 0)))
    return found


def argument_shapes(trace: Trace, names: Collection[str]) -> dict[str, tuple[Shape, ...]]:
    """
    Return the argument shapes of executables by name, in XLA's order, if the trace has them.

    Fields: HloModuleProto host_program_shape = 4 → ProgramShapeProto parameters = 1.

    Raises:
        TraceError: If one of them is damaged.
    """
    plane = trace.plane(_PLANE)
    if plane is None:
        return {}
    message = plane.message
    spans = {
        name: span
        for name in plane.metadata_stats
        if name in names and (span := _module_span(plane, name))
    }
    programs = {name: next(message.inside(*span, 4), None) for name, span in spans.items()}
    return {
        name: tuple(shape_at(message, *part) for part in message.inside(*found, 1))
        for name, found in programs.items()
        if found
    }
