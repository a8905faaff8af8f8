"""
Offsets of the events of a line, found in many stretches of the line at once.

Events follow each other, so each must be read to find the next. But a walk that starts at any byte
that looks like an event's tag soon meets the true walk: stats have the same tag and end where their
event ends. So many walks run in parallel, and only the gap between two of them is walked singly.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Ints, Message

EVENT_TAG = 0x22  # XLine.events = 4, length-delimited
_STRETCH = 1 << 13  # bytes for one walk
_WALKS = 1 << 12  # walks at once, at most
_FEWEST = 64  # walks; fewer are slower than one
_FIRST, _GROWTH = 8, 16  # stretches of the first round, and times as many in each further one
_EVENT = re.compile(rb"\x22[^\0]\x08.[\x01-\x7f]?\x10", re.DOTALL)
"""The begin of most events, a guess: tag, length, metadata_id and the tag of offset_ps."""


def event_tags(message: Message, begin: int, end: int, stretch: int = _STRETCH) -> tuple[Ints, int]:
    """
    Find the tags of consecutive events.

    The rounds begin small and grow, so that the work is in proportion to the bytes of the events,
    however soon another field ends them.

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
    tags, at, n_stretches = [], begin, _FIRST
    while at < end and message.bytes[at] == EVENT_TAG:
        until = min(at + n_stretches * stretch, end)
        n_stretches = min(_GROWTH * n_stretches, _WALKS)
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

    A walk is true from where it meets the true end of the walk before.

    Args:
        message: The trace.
        begin: Offset of the first tag.
        until: Offset behind the last tag to find.
        end: Offset behind the line.
        stretch: Bytes for each walk.
    """
    bounds = np.r_[np.arange(begin, until, stretch), until]
    try:
        visited = _walks(message, bounds)
    except TraceError:  # bytes that are no event have no length; the true walk misses them
        return _walked(message, begin, until, end)
    is_own = visited < bounds[1:, np.newaxis]
    is_own &= message.bytes.take(visited) == EVENT_TAG
    counts, each = is_own.argmin(axis=1), np.arange(len(visited))
    exits = visited[each, counts]
    entries = np.r_[begin, exits[:-1]]
    is_behind = visited >= entries[:, np.newaxis]
    first = is_behind.argmax(axis=1)
    has_met = (visited[each, first] == entries) & (first <= counts)
    is_own &= is_behind
    singly: list[Ints] = []
    behind = 0
    for place in np.flatnonzero(~has_met | (exits < bounds[1:])).tolist():
        if place < behind:
            continue
        at, behind = int(entries[place]), place
        while behind == place or (behind < len(visited) and at != entries[behind]):
            walk, limit = visited[behind, : counts[behind]], int(bounds[behind + 1])
            found, at = _walked(message, at, limit, end, frozenset(walk.tolist()))
            singly.append(found)
            met = int(np.searchsorted(walk, at))
            is_own[behind] = False
            if met < walk.size and walk[met] == at:
                is_own[behind, met : walk.size] = True
                at = int(exits[behind])
            behind += 1
            if at < limit:  # the events end here
                is_own[behind:] = False
                behind = len(visited)
    tags = visited[is_own]
    if singly:
        tags = np.sort(np.concatenate([tags, *singly]))
    return tags, behind_event(message, int(tags[-1]), end)


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
        at = behind_event(message, at, end)
    return np.array(tags, np.int64), at


def behind_event(message: Message, at: int, end: int) -> int:
    """
    Return the offset behind the event whose tag is at an offset.

    Args:
        message: The trace.
        at: Offset of the tag.
        end: Offset behind the line.

    Raises:
        TraceError: If the event is longer than the bytes left.
    """
    size, behind = message.varint(at + 1, end, "XLine.events")
    if size > end - behind:
        raise message.error("XLine", at, f"an event needs {size} bytes, {end - behind} are left")
    return behind + size


def _walks(message: Message, bounds: Ints) -> Ints:
    """
    Walk through all stretches in parallel, each from its first bytes that look like an event.

    Args:
        message: The trace.
        bounds: Begins of the stretches, and the end of the last one, shape (n_walks + 1,).

    Returns:
        The visited offsets, shape (n_walks, longest); the last of each is behind its stretch.
    """
    limit = bounds[1:]
    at = np.array([message.search(_EVENT, *stretch) for stretch in pairwise(bounds.tolist())])
    at[0] = bounds[0]
    rounds: list[Ints] = [at]
    while (at < limit).any():  # a walk goes on behind its stretch until the last one is through
        at = at + 1
        size = message.bytes.take(at)
        at += 1
        at += size
        wide = np.flatnonzero(size >= 0x80)
        if wide.size:
            begin = at[wide] - size[wide].astype(np.int64) - 1
            value, width = message.varints(begin)
            at[wide] = begin + width + np.minimum(value, message.size).view(np.int64)
        np.minimum(at, message.size, out=at)
        rounds.append(at)
    return np.ascontiguousarray(np.concatenate(rounds).reshape(len(rounds), -1).T)
