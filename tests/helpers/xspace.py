"""
XSpace files for tests, written from the description of the format alone.

    space(plane("/host:CPU", line("python", event("train", 0, 10 * MS, step_num=1, _r=1))))

Times are picoseconds. Where a part is wanted (plane, line, event), bytes are spliced in as they are.
"""

import struct
from dataclasses import dataclass

MS = 10**9  # picoseconds in a millisecond


class Ref(str):
    """A stat's text that is stored as a reference to a stat's name."""


class Uint(int):
    """A stat's number that is stored as uint64."""


def varint(value):
    value %= 1 << 64
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number, value):
    """A field, encoded as the type of its value asks for: a varint, a double or so many bytes."""
    if isinstance(value, int):
        return varint(number << 3 | 0) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(name, start, duration, stats=None, /, **more):
    return _Event(name, start, duration, {**(stats or {}), **more})


def at(name, begin, end, /, **stats):
    """An event from one time to another, both in milliseconds."""
    return event(name, round(begin * MS), round((end - begin) * MS), stats)


def line(name, *events, id=0, timestamp_ns=0, display_name=""):
    return _Line(name, events, id, timestamp_ns, display_name)


def plane(name, *lines, metadata=None, stats=None, first_id=1):
    """A plane; `metadata` holds stats of event names: {event name: {stat: value}}."""
    events, texts = _Ids(first_id), _Ids(first_id)
    body = [_encoded(part, events, texts) for part in lines] + [
        field(6, _stat(*stat, texts)) for stat in (stats or {}).items()
    ]
    details = {
        key: b"".join(field(5, _stat(*stat, texts)) for stat in values.items())
        for key, values in (metadata or {}).items()
    }
    for key in details:
        events[key]  # gives it an id
    body += [
        field(4, field(1, id) + field(2, field(1, id) + field(2, text) + details.get(text, b"")))
        for text, id in events.items()
    ]
    body += [
        field(5, field(1, id) + field(2, field(1, id) + field(2, text)))
        for text, id in texts.items()
    ]
    return field(2, name) + b"".join(body)


def space(*planes, errors=(), warnings=(), hostnames=()):
    texts = {2: errors, 3: warnings, 4: hostnames}
    return b"".join(field(1, part) for part in planes) + b"".join(
        field(key, text) for key in texts for text in texts[key]
    )


@dataclass(frozen=True)
class _Event:
    name: str
    start: int
    duration: int
    stats: dict

    def encode(self, events, texts):
        numbers = {1: events[self.name], 2: self.start, 3: self.duration}
        body = b"".join(field(key, value) for key, value in numbers.items() if value)
        return field(
            4, body + b"".join(field(4, _stat(*stat, texts)) for stat in self.stats.items())
        )


@dataclass(frozen=True)
class _Line:
    name: str
    events: tuple
    id: int
    timestamp_ns: int
    display_name: str

    def encode(self, events, texts):
        values = {1: self.id, 2: self.name, 3: self.timestamp_ns, 11: self.display_name}
        head = b"".join(field(key, value) for key, value in values.items() if value)
        return field(3, head + b"".join(_encoded(part, events, texts) for part in self.events))


class _Ids(dict):
    """The id of each text, given when it is first asked for."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def __missing__(self, text):
        return self.setdefault(text, self.first + len(self))


def _encoded(part, events, texts):
    return part if isinstance(part, bytes) else part.encode(events, texts)


def _stat(name, value, texts):
    number = {float: 2, Uint: 3, int: 4, str: 5, bytes: 6, Ref: 7}[type(value)]
    return field(1, texts[name]) + field(number, texts[str(value)] if number == 7 else value)
