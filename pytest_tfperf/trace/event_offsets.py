"""
Offsets of the events of a line, found in many stretches of the line at once.

Events follow each other, so each must be read to find the next. But a walk that starts at any byte
that looks like an event's tag soon meets the true walk: stats have the same tag and end where their
event ends. So many walks run in parallel, and only the gap between two of them is walked singly.
"""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints, Message

EVENT_TAG = 0x22  # XLine.events = 4, length-delimited
_STRETCH = 1 << 13  # bytes for one walk
_WALKS = 1 << 11  # walks at once
_FEWEST = 64  # walks; fewer are slower than one


def event_tags(message: Message, begin: int, end: int, stretch: int = _STRETCH) -> tuple[Ints, int]:
    """
    Find the tags of consecutive events.

    Args:
        message: The trace.
        begin: Offset of the first tag.
        end: Offset behind the line.
        stretch: Bytes for each walk.

    Returns:
        The offsets of the tags, shape (n,), and the offset behind the last event.

    Raises:
        TraceError: If an event is longer than the bytes left.
    """
    tags, at = [], begin
    while at < end and message.bytes[at] == EVENT_TAG:
        until = min(at + _WALKS * stretch, end)
        found, at = (
            _walked_in_parts(message, at, until, end, stretch)
            if until - at > _FEWEST * stretch
            else _walked(message, at, until, end)
        )
        tags.append(found)
    if len(tags) == 1:
        return tags[0], at
    return np.concatenate([np.empty(0, np.int64), *tags]), at


def _walked_in_parts(
    message: Message, begin: int, until: int, end: int, stretch: int
) -> tuple[Ints, int]:
    """
    Find the tags as `_walked` does, with one walk for each stretch.

    Args:
        message: The trace.
        begin: Offset of the first tag.
        until: Offset behind the last tag to find.
        end: Offset behind the line.
        stretch: Bytes for each walk.
    """
    bounds = np.arange(begin, until, stretch)
    visited, counts, exits = _walks(message, bounds, until)
    own = np.arange(len(visited))[:, np.newaxis] < counts
    meets = visited == np.r_[begin, exits[:-1]]
    meets &= own
    has_met, first = meets.any(axis=0), meets.argmax(axis=0)
    if has_met.all():  # each walk meets the one before at its end
        own &= np.arange(len(visited))[:, np.newaxis] >= first
        tags = visited.T[own.T]
        return tags, _behind(message, int(tags[-1]), end)
    kept, at = [], begin
    ends = [begin, *exits.tolist()]
    for place, limit in enumerate([*bounds[1:].tolist(), until]):
        walk = visited[: counts[place], place]
        met = int(first[place])
        if not (has_met[place] and at == ends[place]):
            found, at = _walked(message, at, limit, end, frozenset(walk.tolist()))
            kept.append(found)
            met = int(np.searchsorted(walk, at))
        if met < walk.size and walk[met] == at:
            kept.append(walk[met:])
            at = ends[place + 1]
        if at < limit:
            break
    tags = np.concatenate(kept)
    return tags, _behind(message, int(tags[-1]), end)


def _walked(
    message: Message, at: int, until: int, end: int, known: frozenset[int] = frozenset()
) -> tuple[Ints, int]:
    """
    Find the tags of consecutive events one by one, and the offset behind the last event.

    Args:
        message: The trace.
        at: Offset of the first tag.
        until: Offset behind the last tag to find.
        end: Offset behind the line.
        known: Tags of another walk; the first of them that is met ends this one.
    """
    tags = []
    while at < until and at not in known and message.bytes[at] == EVENT_TAG:
        tags.append(at)
        at = _behind(message, at, end)
    return np.array(tags, np.int64), at


def _behind(message: Message, at: int, end: int) -> int:
    """
    Return the offset behind the event whose tag is at an offset.

    Args:
        message: The trace.
        at: Offset of the tag.
        end: Offset behind the line.
    """
    size, behind = message.varint(at + 1, end, "XLine.events")
    if size > end - behind:
        raise message.error("XLine", at, f"an event needs {size} bytes, {end - behind} are left")
    return behind + size


def _walks(message: Message, bounds: Ints, end: int) -> tuple[Ints, Ints, Ints]:
    """
    Walk through all stretches in parallel, each from its first byte that looks like a tag.

    Args:
        message: The trace.
        bounds: Begins of the stretches, shape (n_walks,).
        end: Offset behind the last stretch.

    Returns:
        The visited offsets, shape (longest, n_walks); their number for each walk, and the offset at
            which it left its stretch or found no tag, both of shape (n_walks,).
    """
    limit = np.r_[bounds[1:], end]
    at = np.array(
        [
            message.index(EVENT_TAG, start, stop)
            for start, stop in zip(bounds.tolist(), limit.tolist(), strict=True)
        ]
    )
    rounds: list[Ints] = [at]
    while (at < limit).any():  # a walk goes on behind its stretch until the last one is through
        size, width = message.varints(at + 1)
        at = at + 1
        at += width
        at += np.minimum(size, message.size).view(np.int64)
        np.minimum(at, message.size, out=at)
        rounds.append(at)
    visited = np.array(rounds)
    is_event = visited < limit
    is_event &= message.bytes[visited] == EVENT_TAG
    counts = is_event.argmin(axis=0)
    exits = visited[counts, np.arange(bounds.size)]
    return visited[:-1], counts, exits
