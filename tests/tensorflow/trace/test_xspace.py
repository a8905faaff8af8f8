import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import xspace
from helpers.paths import DATA
from helpers.traces import VARIABLE
from helpers.xspace import MS, event, field, line, plane, space, varint

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.hlo_modules import buffer_bytes
from pytest_tfperf.trace.xspace import decode_trace, read_trace


def decode_one(*lines, **options):
    (decoded,) = decode_trace(space(plane("p", *lines, **options))).planes
    return decoded


def rows(decoded):
    """Return every event as (line, name, start, duration)."""
    events = Events.of(decoded)
    lines = [decoded.lines[index].name for index in events.line]
    return list(
        zip(
            lines,
            events.names,
            events.start.tolist(),
            (events.end - events.start).tolist(),
            strict=True,
        )
    )


def read_everything(trace):
    for decoded in trace.planes:
        stats = Events.of(decoded).stats
        for name in decoded.stat_names.values():
            stats.present(name), stats.integers(name, 0), stats.texts(name)
    buffer_bytes(trace)


# columns


def test_each_event_has_the_line_name_start_and_duration_that_were_encoded():
    decoded = decode_one(
        line("a", event("x", 0, 7), event("y", 10, 3)), line("b", event("x", 5, 1))
    )
    assert rows(decoded) == [("a", "x", 0, 7), ("a", "y", 10, 3), ("b", "x", 5, 1)]
    assert (decoded.name, decoded.names) == ("p", ("x", "y"))


def test_a_line_knows_its_id_and_its_rows():
    decoded = decode_one(
        line("a", event("x", 0, 1), event("x", 2, 1), id=-559038737),
        line("b"),
        line("c", event("x", 0, 1)),
    )
    assert [(part.id, part.name, part.first, part.last) for part in decoded.lines] == [
        (-559038737, "a", 0, 2),
        (0, "b", 2, 2),
        (0, "c", 2, 3),
    ]


def test_the_display_name_of_a_line_is_preferred():
    assert [part.name for part in decode_one(line("1", display_name="Steps"), line("2")).lines] == [
        "Steps",
        "2",
    ]


def test_starts_count_from_the_earliest_line_that_has_events():
    early, late = (
        line("early", event("x", 2000, 1), timestamp_ns=10**18),
        line("late", event("x", 0, 1), timestamp_ns=10**18 + 5),
    )
    trace = decode_trace(
        space(plane("one", line("empty", timestamp_ns=1), late), plane("two", early))
    )
    assert trace.origin_ns == 10**18
    assert [part.start_ps.tolist() for part in trace.planes] == [[5000], [2000]]


def test_zero_fields_may_be_omitted():
    written = field(4, field(1, 1) + field(2, 0) + field(3, 0))
    assert rows(decode_one(line("a", event("x", 0, 0), written, field(4, b"")))) == [
        ("a", "x", 0, 0),
        ("a", "x", 0, 0),
        ("a", "event 0", 0, 0),
    ]


def test_a_start_of_any_encoded_length_is_exact():
    for start in (-1, 127, 128, 2**56 - 1, 2**56, 2**60, -(2**61), 2**61):
        assert rows(decode_one(line("a", event("x", start, 5), event("x", 1, 2)))) == [
            ("a", "x", start, 5),
            ("a", "x", 1, 2),
        ]


def test_an_impossible_time_is_an_error():
    for start, duration in (
        (2**61 + 1, 0),
        (-(2**61) - 1, 0),
        (-(2**63), 0),
        (2**63 - 1, 0),
        (0, 2**61 + 1),
        (0, -1),
    ):
        message = f"XEvent at byte .* an event starts at {start} ps and takes {duration} ps"
        with pytest.raises(TraceError, match=message):
            decode_one(line("a", event("x", start, duration)))


def test_lines_that_start_years_apart_are_an_error():
    with pytest.raises(TraceError, match="26 days apart"):
        decode_one(
            line("a", event("x", 0, 1), timestamp_ns=1),
            line("b", event("x", 0, 1), timestamp_ns=10**18),
        )


def test_a_line_that_starts_before_1970_is_an_error():
    with pytest.raises(TraceError, match="timestamp_ns is -1"):
        decode_one(line("a", timestamp_ns=-1))


def test_names_are_found_under_any_metadata_id():
    for first_id in (0, -1, 2**31, 2**56, 2**62, -(2**63)):
        events = line("a", event("x", 0, 1, s="t"), event("y", 1, 1))
        decoded = decode_one(events, first_id=first_id)
        assert [row[1] for row in rows(decoded)] == ["x", "y"], first_id
        assert Events.of(decoded).texts("s") == ["t", ""], first_id


def test_an_event_without_metadata_is_named_by_its_id():
    assert rows(decode_one(line("a", field(4, field(1, 99))))) == [("a", "event 99", 0, 0)]


def test_metadata_with_the_same_name_are_merged():
    same = field(4, field(1, 5) + field(2, field(2, "x")))
    decoded = decode_one(line("a", event("x", 0, 1), field(4, field(1, 5))), same)
    assert (decoded.names, decoded.name_index.tolist()) == (("x",), [0, 0])


def test_a_name_that_is_not_utf8_has_replacement_characters():
    assert decode_trace(space(field(2, b"\xff"))).planes[0].name == "\ufffd"


def test_an_event_of_any_size_is_followed_by_the_next():
    for size in (126, 127, 128, 129, 16383, 16384, 70000):
        large = field(4, field(1, 1) + field(4, field(6, bytes(size))))
        found = rows(decode_one(line("a", large, event("x", 1, 2))))
        assert found == [("a", "x", 0, 0), ("a", "x", 1, 2)], size


def test_hostnames_errors_and_warnings_are_kept():
    trace = decode_trace(
        space(plane("p"), hostnames=["h", "i"], errors=["bad"], warnings=["odd", ""]), "file.pb"
    )
    assert (trace.path, trace.hostnames, trace.errors, trace.warnings) == (
        "file.pb",
        ("h", "i"),
        ("bad",),
        ("odd", ""),
    )


def test_the_first_plane_of_a_name_is_found():
    trace = decode_trace(space(plane("a"), plane("b", line("first")), plane("b")))
    assert trace.plane("b") is trace.planes[1]
    assert trace.plane("c") is None


def test_a_plane_without_lines_has_empty_columns():
    decoded = decode_one()
    assert (decoded.lines, decoded.names, decoded.start_ps.size, decoded.name_index.size) == (
        (),
        (),
        0,
        0,
    )


# other orders, fields of other versions

UNKNOWN = [
    field(99, 7),
    field(99, "text"),
    field(99, 1.5),
    varint(99 << 3 | 5) + b"abcd",
    field(2**28, 1),
]
ID, OFFSET, DURATION, STAT = (
    field(1, 1),
    field(2, 30),
    field(3, 40),
    field(4, field(1, 1) + field(4, 50)),
)
ORDERS = [
    (OFFSET, ID, DURATION, STAT),
    (DURATION, OFFSET, ID, STAT),
    (ID, STAT, OFFSET, DURATION),
    (STAT, ID, OFFSET, DURATION),
    (ID, OFFSET, STAT, DURATION),
    (STAT, STAT, DURATION, OFFSET, STAT, ID),
    (field(2, 1), ID, OFFSET, DURATION, STAT),
    (ID, field(2, 1), DURATION, STAT, OFFSET),
]


def test_fields_of_an_event_may_have_any_order():
    for number, parts in enumerate(ORDERS):
        decoded = decode_one(
            line("a", event("x", 1, 2, s=3), field(4, b"".join(parts)), event("x", 4, 5, s=6))
        )
        expected = [("a", "x", 1, 2), ("a", "x", 30, 40), ("a", "x", 4, 5)]
        assert rows(decoded) == expected, number
        assert Events.of(decoded).integers("s").tolist() == [3, 50, 6], number


def test_unknown_fields_of_an_event_are_skipped():
    for unknown in UNKNOWN:
        for place in range(5):
            parts = [ID, OFFSET, DURATION, STAT]
            parts.insert(place, unknown)
            decoded = decode_one(line("a", event("x", 1, 2, s=3), field(4, b"".join(parts))))
            assert rows(decoded) == [("a", "x", 1, 2), ("a", "x", 30, 40)], (unknown, place)
            assert Events.of(decoded).integers("s").tolist() == [3, 50], (unknown, place)


def test_an_aggregated_event_starts_at_its_line():
    for count in (b"", field(4, field(1, 1) + field(4, 50))):
        aggregated = field(4, ID + DURATION + count + field(5, 1000))
        found = rows(decode_one(line("a", event("x", 1, 2, s=3), aggregated)))
        assert found == [("a", "x", 1, 2), ("a", "x", 0, 40)], count


def test_unknown_fields_of_lines_planes_and_spaces_are_skipped():
    for unknown in UNKNOWN:
        parts = (
            unknown,
            line("a", unknown, event("x", 1, 2), unknown, event("x", 3, 4), unknown),
            unknown,
        )
        (decoded,) = decode_trace(unknown + space(plane("p", *parts)) + unknown).planes
        assert rows(decoded) == [("a", "x", 1, 2), ("a", "x", 3, 4)], unknown


def test_name_and_time_of_a_line_may_follow_its_events():
    late = line("", event("x", 1, 2), field(2, "late") + field(3, 1000), event("x", 3, 4))
    assert rows(decode_one(line("a", event("x", 0, 1), timestamp_ns=999), late)) == [
        ("a", "x", 0, 1),
        ("late", "x", 1001, 2),
        ("late", "x", 1003, 4),
    ]


def test_metadata_may_precede_the_events():
    head = field(4, field(1, 7) + field(2, field(2, "early"))) + field(2, "p")
    (decoded,) = decode_trace(space(head + field(3, field(4, field(1, 7))))).planes
    assert decoded.names == ("early",)


def test_a_line_field_of_the_wrong_wire_type_is_skipped():
    for wrong in (
        field(2, 5),
        field(3, "text"),
        field(1, "text"),
        field(3, 2.0),
        field(1, 2.0),
        field(11, 3),
        field(2, 2.0),
    ):
        (part,) = decode_one(line("a", wrong, id=3)).lines
        assert (part.id, part.name) == (3, "a"), wrong


# damage


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "gone.xplane.pb"
    with pytest.raises(
        TraceError, match=re.escape(f"trace {path}: cannot be read: No such file or directory")
    ):
        read_trace(path)


def test_a_trace_names_its_file(tmp_path):
    path = tmp_path / "here.xplane.pb"
    path.write_bytes(space(plane("p")))
    assert read_trace(path).path == read_trace(str(path)).path == str(path)


def test_bytes_without_a_plane_are_an_error():
    for raw in (b"", space(hostnames=["h"]), field(99, 1)):
        with pytest.raises(TraceError, match=f"trace <bytes>: no plane in {len(raw)} bytes"):
            decode_trace(raw)


DAMAGED = [
    (b"\x0a\x05\x12\x01p", "XSpace at byte 2 of 5: field 1 needs 5 bytes, 3 are left"),
    (b"\x0a\x03\x12\x05p", "XPlane at byte 4 of 5: field 2 needs 5 bytes, 1 are left"),
    (b"\x0a\x80", "XSpace at byte 1 of 2: a varint does not end"),
    (b"\x08" + b"\x80" * 10 + b"\x01", "XSpace at byte 1 of 12: a varint does not end"),
    (b"\x0b", "XSpace at byte 1 of 1: wire type 3 of field 1 is not in use"),
    (b"\x00\x01", "XSpace at byte 1 of 2: field number 0"),
    (b"\x02\x00", "XSpace at byte 1 of 2: field number 0"),
    (
        space(field(3, field(4, b"\x08\x01\x10"))),
        "XEvent at byte 9 of 9: a varint does not end",
    ),
    (
        space(field(3, b"\x22\x05\x08\x01")),
        "XLine at byte 4 of 8: an event needs 5 bytes, 2 are left",
    ),
    (space(field(3, b"\x22")), "XLine.events at byte 5 of 5: a varint does not end"),
]


def test_an_error_names_file_part_byte_and_reason():
    for raw, what in DAMAGED:
        message = f"some.pb is not an XSpace trace (.xplane.pb), or it is damaged ({what})"
        with pytest.raises(TraceError, match=re.escape(message)):
            decode_trace(raw, "some.pb")


def test_an_overlong_tag_is_an_error():
    for tag in (b"\xa2\x00", b"\xa2\x80\x00"):
        with pytest.raises(TraceError, match="XLine at byte"):
            decode_one(line("a", event("x", 1, 2), tag + b"\x02\x08\x01"))


def sample():
    """Return the fields of a small trace with everything in it."""
    stats = {
        "int": -1,
        "uint": xspace.Uint(2**64 - 1),
        "text": "t" * 130,
        "double": -1.5,
        "bytes": b"\xff\x00",
        "ref": xspace.Ref("other"),
    }
    host = plane(
        "/host:CPU",
        line(
            "python",
            event("train", 0, 10 * MS, stats),
            event("inner", 1 * MS, 2 * MS, text="12"),
            id=3,
            timestamp_ns=10**18,
        ),
        line("empty", display_name="shown"),
        line("other", event("train", -5, 0), event("far", 2**60, 1), timestamp_ns=10**18 + 70),
        stats={"process_id": 4},
    )
    proto = field(3, field(3, field(1, 0) + field(2, 4096)) + field(3, field(2, 8)))
    hlo = plane("/host:metadata", metadata={"jit_f(1)": {"Hlo Proto": proto}})
    return [
        field(1, host),
        field(1, hlo),
        field(4, "hostname"),
        field(2, "error"),
        field(1, plane("last", line("l", event("e", 1, 1), timestamp_ns=10**18))),
    ]


def test_a_trace_cut_at_any_byte_is_an_error_or_the_planes_before_the_cut():
    parts = sample()
    raw, whole = b"".join(parts), decode_trace(b"".join(parts))
    planes_before = {
        sum(map(len, parts[:n])): sum(part[0] == 0x0A for part in parts[:n])
        for n in range(len(parts) + 1)
    }
    for cut in range(len(raw)):
        if planes_before.get(cut):
            kept = decode_trace(raw[:cut]).planes
            assert list(map(rows, kept)) == list(map(rows, whole.planes[: planes_before[cut]]))
        else:
            with pytest.raises(TraceError):
                decode_trace(raw[:cut])


def survives(raw):
    try:
        read_everything(decode_trace(raw))
    except TraceError:
        return False
    return True


def test_flipped_bits_give_an_error_or_a_trace():
    for seed in range(2):
        assert_flips_survive(random.Random(seed), 100)


@pytest.mark.nightly
def test_many_flipped_bits_give_an_error_or_a_trace():
    for seed in range(2, 5):
        assert_flips_survive(random.Random(seed), 1000)


def assert_flips_survive(chance, n_copies):
    raw = b"".join(sample())
    damaged = []
    for _ in range(n_copies):
        copy = bytearray(raw)
        for _ in range(chance.choice((1, 1, 2, 8))):
            copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        damaged.append(survives(bytes(copy)))
    assert {False, True} == set(damaged)


def test_random_bytes_anywhere_give_an_error_or_a_trace():
    for seed in range(2):
        assert_random_bytes_survive(random.Random(seed), 50)


@pytest.mark.nightly
def test_many_random_bytes_anywhere_give_an_error_or_a_trace():
    for seed in range(2, 5):
        assert_random_bytes_survive(random.Random(seed), 1000)


def assert_random_bytes_survive(chance, n_texts):
    for _ in range(n_texts):
        raw = chance.randbytes(chance.randrange(60))
        wrapped = field(2, "s") + field(1, 1)
        for damaged in (
            raw,
            field(1, raw),
            field(1, field(3, raw)),
            field(1, field(3, field(4, raw))),
            field(1, field(4, raw)),
        ):
            survives(damaged)
        survives(
            field(1, field(3, field(4, field(4, raw))) + field(5, field(1, 0) + field(2, wrapped)))
        )


# agreement with the generated protobuf class


def random_space(seed):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    chance = random.Random(seed)
    result = xplane_pb2.XSpace(hostnames=["h"], errors=["e"], warnings=["w"])
    for number in range(3):
        part = result.planes.add(id=number, name=f"/device:GPU:{number}")
        for key in range(8):
            part.event_metadata[key * 2**40].name = f"name {key // 2}"
        for _ in range(chance.randrange(4)):
            row = part.lines.add(
                id=chance.randint(-(2**63), 2**63 - 1),
                name=f"line {chance.random()}",
                timestamp_ns=10**18 + chance.randrange(10**9),
            )
            if chance.random() < 0.5:
                row.display_name = "shown"
            for _ in range(chance.randrange(100)):
                add_event(chance, row)
    return result


def add_event(chance, row):
    def number():
        return chance.randrange(1 << chance.randrange(60))

    added = row.events.add(
        metadata_id=chance.randrange(9) * 2**40, duration_ps=chance.choice((0, number()))
    )
    match chance.randrange(4):
        case 0:
            added.offset_ps = -number()
        case 1 | 2:
            added.offset_ps = number()
        case 3:
            added.num_occurrences = number()
    for key in range(chance.choice((0, 0, 1, 5))):
        added.stats.add(metadata_id=key, str_value="v" * chance.randrange(200))


def facts_of_protobuf(message):
    """Return the `facts` of a decoded trace, read by the protobuf library."""
    used = [row for part in message.planes for row in part.lines if row.events]
    origin = min((row.timestamp_ns for row in used), default=0)

    def name(part, key):
        return part.event_metadata[key].name if key in part.event_metadata else f"event {key}"

    return origin, [
        (
            part.name,
            [
                (
                    row.id,
                    row.display_name or row.name,
                    [
                        (
                            name(part, e.metadata_id),
                            (row.timestamp_ns - origin) * 1000 + e.offset_ps,
                            e.duration_ps,
                        )
                        for e in row.events
                    ],
                )
                for row in part.lines
            ],
        )
        for part in message.planes
    ]


def facts(trace):
    return trace.origin_ns, [
        (
            part.name,
            [
                (row.id, row.name, [event[1:] for event in rows(part)[row.first : row.last]])
                for row in part.lines
            ],
        )
        for part in trace.planes
    ]


def test_a_trace_equals_that_of_the_protobuf_library():
    for seed in range(5):
        message = random_space(seed)
        trace = decode_trace(message.SerializeToString())
        assert facts(trace) == facts_of_protobuf(message), seed
        assert (trace.hostnames, trace.errors, trace.warnings) == (("h",), ("e",), ("w",)), seed


def test_stored_traces_equal_those_of_the_protobuf_library():
    paths = sorted(DATA.glob("**/*.xplane.pb"))
    assert paths
    for path in paths:
        assert_equals_the_protobuf_library(path)


@pytest.mark.full
def test_real_traces_equal_those_of_the_protobuf_library():
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no folder of real traces")
    paths = sorted(Path(os.environ[VARIABLE]).glob("*.xplane.pb"))
    assert paths
    for path in paths:
        assert_equals_the_protobuf_library(path)


def assert_equals_the_protobuf_library(path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    message = xplane_pb2.XSpace.FromString(path.read_bytes())
    trace = read_trace(path)
    read_everything(trace)
    assert facts(trace) == facts_of_protobuf(message), path
    assert all(np.diff(part.line_index).min(initial=0) >= 0 for part in trace.planes), path
