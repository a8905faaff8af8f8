"""
Where the events of a line begin, many stretches of the line at once.

Events follow each other, so in principle each must be read to know where the next one is. But a walk that starts at any byte that looks
like an event's tag soon falls into step with the true one: an event's stats have the same tag and end where the event ends. So
walks from many places go on side by side, and only what lies between two of them is walked singly.
"""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints, Message

EVENT_TAG = 0x22  # XLine.events = 4, length-delimited
_STRETCH = 1 << 13  # bytes for one walk
_WALKS = 1 << 11  # at once
_FEWEST = 64  # walks that are worth their rounds


def event_tags(message: Message, begin: int, end: int, stretch: int = _STRETCH) -> tuple[Ints, int]:
    """
    The offsets of the tags of the events that follow each other from `begin` on, and the offset behind the last of them.

    Raises:
        TraceError: If an event is longer than what is left until `end`.
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
    return np.concatenate(tags) if tags else np.empty(0, np.int64), at


def _walked_in_parts(
    message: Message, begin: int, until: int, end: int, stretch: int
) -> tuple[Ints, int]:
    """As `_walked`, with a walk in each stretch; from where the true walk meets one, it is that one."""
    bounds = np.arange(begin, until, stretch)
    visited, counts, exits = _walks(message, bounds, until)
    meets = visited == np.r_[begin, exits[:-1]]
    if meets.size and meets.any(axis=0).all():  # each walk meets the one before at its end
        rounds = np.arange(len(visited))[:, np.newaxis]
        tags = visited.T[((rounds >= meets.argmax(axis=0)) & (rounds < counts)).T]
        return tags, _behind(message, int(tags[-1]), end)
    kept, at = [], begin
    for place, limit in enumerate([*bounds[1:].tolist(), until]):
        walk = visited[: counts[place], place]
        while at < limit and message.bytes[at] == EVENT_TAG:
            met = int(np.searchsorted(walk, at))
            if met < walk.size and walk[met] == at:
                kept.append(walk[met:])
                at = int(exits[place])
                break
            kept.append(np.array([at]))
            at = _behind(message, at, end)
        if at < limit:
            break
    tags = np.concatenate(kept)
    return tags, _behind(message, int(tags[-1]), end)


def _walked(message: Message, at: int, until: int, end: int) -> tuple[Ints, int]:
    """The tags of the events that follow each other from `at` and begin before `until`, and the offset behind the last."""
    tags = []
    while at < until and message.bytes[at] == EVENT_TAG:
        tags.append(at)
        at = _behind(message, at, end)
    return np.array(tags, np.int64), at


def _behind(message: Message, at: int, end: int) -> int:
    """The offset behind the event whose tag is at this one."""
    size, behind = message.varint(at + 1, end, "XLine.events")
    if size > end - behind:
        raise message.error("XLine", at, f"an event needs {size} bytes, {end - behind} are left")
    return behind + size


def _walks(message: Message, bounds: Ints, end: int) -> tuple[Ints, Ints, Ints]:
    """
    Of a walk in each stretch, from its first byte that looks like a tag: what it visited, shape (longest, n_walks), how much that is,
    and where it left its stretch, or found no tag.
    """
    limit = np.r_[bounds[1:], end]
    at = np.array(
        [
            message.index(EVENT_TAG, start, stop)
            for start, stop in zip(bounds.tolist(), limit.tolist(), strict=True)
        ]
    )
    counts = np.zeros(bounds.size, np.int64)
    rounds: list[Ints] = []
    alive = np.flatnonzero(at < limit)
    while alive.size:
        here = at[alive]
        row = np.zeros(bounds.size, np.int64)
        row[alive] = here
        rounds.append(row)
        counts[alive] += 1
        size, width = message.varints(here + 1)
        at[alive] = here + 1 + width + np.minimum(size, message.size).astype(np.int64)
        alive = alive[at[alive] < limit[alive]]
        alive = alive[message.bytes[at[alive]] == EVENT_TAG]
    visited = np.array(rounds) if rounds else np.zeros((0, bounds.size), np.int64)
    return visited, counts, at
