import re

import numpy as np
import pytest
from helpers.refusals import refusal
from helpers.xspace import MS, Ref, Uint, event, field, line, plane, space
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.events import Events, joined
from pytest_tfperf.trace.xspace import decode_trace


def events_of(*events, **options):
    return Events.of(decode_trace(space(plane("p", line("a", *events), **options))).planes[0])


def with_stats(*stats):
    """Encode one event for each mapping of stats."""
    return events_of(*(event("x", 0, 1, part) for part in stats))


@pytest.fixture
def three():
    return events_of(
        event("train", 0, 10 * MS, step_num=7),
        event("op", MS, 2 * MS, kind="a"),
        event("op", 3 * MS, MS, kind="b"),
    )


# selections


def test_a_plane_has_all_its_events_in_order(three):
    assert len(three) == 3
    assert three.names == ["train", "op", "op"]
    assert (three.start.tolist(), three.end.tolist()) == (
        [0, MS, 3 * MS],
        [10 * MS, 3 * MS, 4 * MS],
    )
    assert [column.tolist() for column in three.spans] == [three.start.tolist(), three.end.tolist()]


def test_an_event_knows_its_line():
    trace = decode_trace(
        space(plane("p", line("a", event("x", 0, 1)), line("b"), line("c", event("x", 0, 1))))
    )
    assert Events.of(trace.planes[0]).line.tolist() == [0, 2]


def test_an_empty_selection_has_empty_columns():
    for nothing in [
        Events.of(None),
        events_of(),
        with_stats({"s": 1}).called("y"),
        with_stats({"s": 1}).within(5, 5),
    ]:
        assert (
            len(nothing)
            == len(nothing.named(str.isupper))
            == len(nothing.called("x"))
            == len(nothing.within(0, 9))
            == len(nothing.having("s"))
            == 0
        ), nothing
        assert (
            nothing.names
            == nothing.texts("s")
            == nothing.integers("s").tolist()
            == nothing.start.tolist()
            == nothing.line.tolist()
            == []
        ), nothing


def test_called_selects_exact_names(three):
    for names, starts in [
        (["op"], [MS, 3 * MS]),
        (["train", "op"], [0, MS, 3 * MS]),
        (["o"], []),
        ([], []),
    ]:
        assert three.called(*names).start.tolist() == starts, names


def test_named_selects_rare_and_frequent_names_in_their_order():
    for wanted in ["", "a", "ab", "c", "abc", "bd"]:
        names = ["a" if n % 50 == 7 else "b" if n % 50 == 9 else "cd"[n % 2] for n in range(1000)]
        events = events_of(*(event(name, n, 1) for n, name in enumerate(names)))
        expected = [n for n, name in enumerate(names) if name in wanted]
        chosen = frozenset(wanted).__contains__
        assert events.named(chosen).rows.tolist() == expected, wanted
        some = events.where(events.rows % 3 > 0)
        assert some.named(chosen).rows.tolist() == [n for n in expected if n % 3], wanted


def test_named_calls_its_predicate_once_for_each_name(three):
    asked = []
    assert three.named(lambda name: asked.append(name) or name == "op").names == ["op", "op"]
    assert sorted(asked) == ["op", "train"]


def test_within_selects_starts_in_the_half_open_span(three):
    for begin, end, starts in [
        (0, MS, [0]),
        (MS, MS, []),
        (MS, 3 * MS, [MS]),
        (MS, 3 * MS + 1, [MS, 3 * MS]),
        (-9, 99 * MS, [0, MS, 3 * MS]),
    ]:
        assert three.within(begin, end).start.tolist() == starts, (begin, end)


def test_where_selects_by_a_mask(three):
    assert three.where(three.end == 4 * MS).texts("kind") == ["b"]


def test_selections_can_be_chained_and_keep_their_stats(three):
    late = three.called("op").within(2 * MS, 9 * MS)
    assert late.rows.tolist() == [2]
    assert late.texts("kind") == ["b"]


def test_having_selects_the_events_that_carry_a_stat(three):
    assert three.having("kind").names == ["op", "op"]
    assert three.having("step_num").names == ["train"]
    assert three.having("unheard of").names == []


# values of stats


VALUES = [
    (0, 0, "0"),
    (7, 7, "7"),
    (-1, -1, "-1"),
    (2**63 - 1, 2**63 - 1, str(2**63 - 1)),
    (-(2**63), -(2**63), str(-(2**63))),
    (Uint(0), 0, "0"),
    (Uint(2**63 - 1), 2**63 - 1, str(2**63 - 1)),
    (Uint(2**63), -(2**63), str(2**63)),
    (Uint(2**64 - 1), -1, str(2**64 - 1)),
    (0.0, -5, "0.0"),
    (1.5, -5, "1.5"),
    (-1e300, -5, "-1e+300"),
    (float("inf"), -5, "inf"),
    ("", -5, ""),
    ("text", -5, "text"),
    ("é", -5, "é"),
    ("12", 12, "12"),
    ("-12", -12, "-12"),
    ("007", 7, "007"),
    (Ref("a.name"), -5, "a.name"),
    (Ref("34"), 34, "34"),
    (b"56", 56, "56"),
    (b"\xff", -5, "\ufffd"),
    (str(2**63 - 1), 2**63 - 1, str(2**63 - 1)),
    (str(-(2**63)), -(2**63), str(-(2**63))),
    (str(2**63), -5, str(2**63)),
    (str(-(2**63) - 1), -5, str(-(2**63) - 1)),
    ("9" * 5000, -5, "9" * 5000),
    ("²", -5, "²"),
    ("--5", -5, "--5"),
    ("-", -5, "-"),
    ("1.5", -5, "1.5"),
    ("1\n", -5, "1\n"),
    (" 1", -5, " 1"),
    ("t" * 20000, -5, "t" * 20000),
]


def test_a_stat_is_read_as_integer_and_as_text():
    for value, integer, text in VALUES:
        events = with_stats({}, {"before": 1, "s": value, "after": "z"}, {"s": 3})
        assert events.integers("s", -5).tolist() == [-5, integer, 3], value
        assert events.texts("s") == ["", text, "3"], value
        assert events.stats.present("s").tolist() == [False, True, True], value
        assert events.texts("after") == ["", "z", ""], value


def test_an_absent_stat_gives_the_default():
    assert with_stats({"s": 1}, {}).integers("t").tolist() == [0, 0]
    assert with_stats({"s": 1}, {}).integers("s", 9).tolist() == [1, 9]


def test_the_last_of_two_equal_stats_counts():
    twice = field(4, field(1, 1) + field(4, 8)) + field(4, field(1, 1) + field(4, 9))
    assert events_of(event("x", 0, 1, s=7), field(4, twice)).integers("s").tolist() == [7, 9]


def test_stats_with_the_same_name_are_merged():
    other = field(5, field(1, 70) + field(2, field(2, "s")))
    (part,) = decode_trace(
        space(
            plane(
                "p",
                line("a", event("x", 0, 1, s=7), field(4, field(4, field(1, 70) + field(4, 8)))),
                other,
            )
        )
    ).planes
    assert Events.of(part).integers("s").tolist() == [7, 8]


def test_a_dangling_reference_is_an_empty_text():
    assert events_of(event("x", 0, 1, s=7), field(4, field(4, field(1, 1) + field(7, 70)))).texts(
        "s"
    ) == ["7", ""]


def test_a_stat_without_value_is_zero():
    events = events_of(
        event("x", 0, 1, s=7), field(4, field(4, field(1, 1))), field(4, field(4, b""))
    )
    assert (events.integers("s", 5).tolist(), events.texts("s")) == ([7, 0, 5], ["7", "0", ""])


def test_fields_of_a_stat_may_have_any_order():
    for stat in [
        field(4, 9) + field(1, 1),
        field(99, "new") + field(1, 1) + field(4, 9),
        field(1, 1) + field(99, 2.5) + field(4, 9),
        field(1, 1) + field(4, 9) + field(99, 2),
        field(1, 2) + field(4, 9) + field(1, 1),
        field(1, 1) + field(2, 1.5) + field(5, "text") + field(4, 9),
    ]:
        events = events_of(
            event("x", 0, 1, s=7, t=0),
            field(4, field(4, stat) + field(4, field(1, 2) + field(4, 8))),
        )
        assert events.integers("s").tolist() == [7, 9], stat
        assert events.integers("t").tolist() == [0, 8], stat


def test_a_double_that_looks_like_an_endless_varint():
    every_byte_goes_on = field(1, 1) + field(2, -1.9999999999999998) + field(2**20, 0)
    assert events_of(event("x", 0, 1, s=1.5), field(4, field(4, every_byte_goes_on))).texts(
        "s"
    ) == ["1.5", "-1.9999999999999998"]


# damage


DAMAGE = [
    (b"\x22\x09\x08\x01", "XEvent at byte .* field 4 needs 9 bytes, 2 are left"),
    (b"\x22", "XEvent at byte .* a varint does not end"),
    (
        b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "field 4 needs 18446744073709551615 bytes",
    ),
    (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "field 4 needs 9223372036854775807 bytes"),
    (field(4, b"\x08"), "XStat at byte .* a varint does not end"),
    (field(4, b"\x08\x80"), "XStat at byte .* a varint does not end"),
    (field(4, b"\x08\x01\x20"), "XStat at byte .* a varint does not end"),
    (field(4, b"\x08\x01\x20\x80"), "XStat at byte .* a varint does not end"),
    (field(4, b"\x08\x01\x11\x00\x00"), "XStat at byte .* field 2 needs 8 bytes, 2 are left"),
    (field(4, b"\x08\x01\x2a\x05abc"), "XStat at byte .* field 5 needs 5 bytes, 3 are left"),
    (
        field(4, b"\x08\x01\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        "field 5 needs 9223372036854775807 bytes",
    ),
    (
        field(4, b"\x08\x01\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        "field 6 needs 18446744073709551615 bytes",
    ),
    (field(4, b"\x08\x01\x23"), "wire type 3 of field 4 is not in use"),
]


def test_a_stat_longer_than_its_event_or_a_value_longer_than_its_stat_is_an_error():
    for stat, what in DAMAGE:
        for times in [field(1, 1), field(1, 1) + field(2, 1) + field(3, 1)]:
            encoded = (
                event("x", 0, 1, s=1),
                field(4, times + stat),
                event("x", 2, 3, s="text" * 40),
            )
            said = refusal(TraceError, lambda *events: events_of(*events).integers("s"), *encoded)
            assert re.search(what, said), (stat, times)


# agreement with the generated protobuf class


def test_having_finds_stats_of_any_id():
    for first_id in [1, 127, 128, 16_384, 1 << 40]:
        marked = [
            event("a", n, 1, {"other": n, "wanted": n})
            if n % 3 == 0
            else event("a", n, 1, {"other": 8 + first_id})
            for n in range(50)
        ]
        events = Events.of(
            decode_trace(
                space(
                    plane("p", line("x", *marked), line("y", event("a", 99, 1)), first_id=first_id)
                )
            ).planes[0]
        )
        assert events.having("wanted").start.tolist() == list(range(0, 50, 3)), first_id
        assert events.where(events.start % 2 == 0).having("wanted").start.tolist() == list(
            range(0, 50, 6)
        ), first_id
        backwards = Events(events.plane, events.rows[::-1])
        assert backwards.having("wanted").start.tolist() == list(range(48, -1, -3)), first_id
        assert len(events.having("never")) == 0, first_id


@given(st.lists(st.sampled_from(["wanted", "other", "both", "none"]), max_size=12), st.data())
def test_having_of_some_events_is_the_same_before_and_after_all_were_searched(kinds, data):
    stats = {"both": {"other": 1, "wanted": 2}, "none": {}}
    encoded = [event("a", n, 1, stats.get(kind, {kind: 3})) for n, kind in enumerate(kinds)]
    events = Events.of(decode_trace(space(plane("p", line("x", *encoded)))).planes[0])
    chosen = data.draw(st.permutations(range(len(kinds)))) if kinds else []
    some = Events(events.plane, np.array(chosen[: len(kinds) // 2 + 1], np.int64))
    expected = [n for n in some.rows.tolist() if kinds[n] in ("wanted", "both")]
    assert some.having("wanted").rows.tolist() == expected
    found = [n for n, kind in enumerate(kinds) if kind in ("wanted", "both")]
    assert events.having("wanted").rows.tolist() == found
    assert some.having("wanted").rows.tolist() == expected


def test_joined_takes_the_last_of_equal_keys():
    wanted, keys, values = (
        np.array([5, 7, 9, -1, 5]),
        np.array([7, 5, 5, 8]),
        np.array([70, 50, 51, 80]),
    )
    assert joined(wanted, keys, values).tolist() == [51, 70, -1, -1, 51]
    assert joined(wanted, keys[:0], values[:0]).tolist() == [-1] * 5
    assert joined(wanted[:0], keys, values).tolist() == []
