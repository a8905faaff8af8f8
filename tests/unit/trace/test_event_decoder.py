"""Compiled decoding of events against Python's, and what happens where it was not compiled."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.fuzz import mutant
from helpers.traces import SYNTHETIC
from helpers.xspace import field, varint
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Message
from pytest_tfperf.trace import event_decoder
from pytest_tfperf.trace.xspace import decode_trace

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler"
)


@pytest.fixture(scope="module", autouse=True)
def short_lines_too():
    """Short lines go to the compiled code as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_decoder, "SHORT", 0)
        yield


@needs_compiler
def test_the_decoder_is_compiled_where_there_is_a_compiler():
    assert event_decoder.compiled_code() is not None, "pip install -e . compiles it again"


def outcome(raw):
    """Tags, the offset behind them and columns of the events at the begin; or the parts that can be read."""
    message = Message(raw, "x")
    try:
        tags, behind = event_decoder.event_tags(message, 0, len(raw))
    except TraceError as error:
        return str(error)
    try:
        columns = event_decoder.decode_events(message, tags)
    except TraceError:
        return tags.tolist(), behind, "damaged"
    return tags.tolist(), behind, [column.tolist() for column in columns]


def outcome_without_compiler(raw):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_decoder, "compiled_code", lambda: None)
        return outcome(raw)


NUMBERS = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**64 - 1),
    st.integers(0, 9).map(lambda n: (1 << 7 * n) - 1),
    st.sampled_from([event_decoder.MAX_PS, event_decoder.MAX_PS + 1, 2**64 - event_decoder.MAX_PS]),
)
STATS = st.binary(max_size=150).map(lambda content: field(4, content))
FIELDS = st.one_of(
    st.tuples(st.integers(1, 5), NUMBERS).map(lambda pair: field(*pair)),
    STATS,
    st.binary(max_size=3),
)


@st.composite
def usual_event(draw):
    """Encode an event as most are: some of its numbers in order, then stats."""
    numbers = [field(number, draw(NUMBERS)) for number in (1, 2, 3) if draw(st.booleans())]
    return b"".join([*numbers, *draw(st.lists(STATS, max_size=3))])


EVENTS = st.lists(st.one_of(usual_event(), st.lists(FIELDS, max_size=5).map(b"".join)), max_size=8)


@given(EVENTS, st.binary(max_size=12))
@example([b"\x08" + b"\xff" * 10 + b"\x01"], b"")  # a number without end
@example([b"\x22\x7f"], b"")  # a stat that is longer than its event
@example([b"\x08"], b"\x22\x00")  # a number that ends in the next event
@example([b""], b"\x22" + b"\xff" * 11)  # a length without end
@example([field(2, event_decoder.MAX_PS)], b"")
@example([field(2, event_decoder.MAX_PS + 1)], b"")
@example([field(2, 2**64 - event_decoder.MAX_PS)], b"")
@example([field(2, 2**64 - event_decoder.MAX_PS - 1)], b"")
@example([field(3, event_decoder.MAX_PS + 1)], b"")
@example([field(3, 2**64 - 1)], b"")
@example([field(1, 5)], b"\x18\x01")  # a number of the line behind an event without that number
@example([b"\x08\x00"], b"\x10" + b"\xff" * 10)
@example([b""], b"\x08\x07" * 3)
def test_both_decoders_agree_on_events(events, behind):
    raw = b"".join(field(4, one) for one in events) + behind
    assert outcome(raw) == outcome_without_compiler(raw)


@given(st.binary(max_size=300).map(lambda raw: raw.replace(b"\x00", b"\x22")))
def test_both_decoders_agree_on_any_bytes(raw):
    assert outcome(raw) == outcome_without_compiler(raw)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 24), marks=pytest.mark.nightly)])
def test_both_decoders_agree_on_damaged_traces(monkeypatch, seeds):
    """Whole traces, each with the bytes of some places changed."""
    for path in sorted(SYNTHETIC.glob("*.pb")):
        for seed in seeds:
            raw = mutant(path.read_bytes(), seed)
            compiled = decoded(raw)
            with monkeypatch.context() as patch:
                patch.setattr(event_decoder, "compiled_code", lambda: None)
                assert decoded(raw) == compiled, (path.name, seed)


def decoded(raw):
    try:
        trace = decode_trace(raw)
    except TraceError:
        return None
    return [
        [
            getattr(plane, name).tolist()
            for name in ("start_ps", "duration_ps", "name_index", "stats_begin", "stats_end")
        ]
        for plane in trace.planes
    ]


def test_many_events_of_another_form_among_many_usual_ones():
    chance = random.Random(3)
    expected, encoded = [], []
    for number in range(3_000):
        parts = [field(1, 5), field(2, number), field(3, 7), field(4, b"stat")]
        if chance.random() < 0.3:
            chance.shuffle(parts)
        expected.append(number)
        encoded.append(field(4, b"".join(parts)))
    message = Message(b"".join(encoded), "x")
    tags, _ = event_decoder.event_tags(message, 0, message.size)
    _, offset, duration, _, _ = event_decoder.decode_events(message, tags)
    assert offset.tolist() == expected
    assert set(duration.tolist()) == {7}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder in the place of the module's, with a source and no compiled code."""
    event_decoder.compiled_code()  # which is kept, so that later tests have it
    source = tmp_path / event_decoder.SOURCE.name
    source.write_text("")
    monkeypatch.setattr(event_decoder, "SOURCE", source)
    monkeypatch.setattr(event_decoder, "LIBRARY", source.with_suffix(".so"))
    return source


def load():
    return event_decoder.compiled_code.__wrapped__()


def test_without_compiled_code_there_is_none(elsewhere):
    assert load() is None


def test_without_compiled_code_python_finds_the_events_up_to_another_field():
    events = field(4, field(1, 5) + field(2, 7)) * 3
    tags, behind, columns = outcome_without_compiler(events + field(11, "text"))
    assert (tags, behind) == ([0, 6, 12], 18)
    assert columns[:3] == [[5] * 3, [7] * 3, [0] * 3]
    said = outcome_without_compiler(events + b"\x22" + varint(9) + b"short")
    assert "an event needs 9 bytes, 5 are left" in said


def test_compiled_code_of_another_machine_is_not_used(elsewhere):
    event_decoder.LIBRARY.write_bytes(b"\x7fELF of another machine")
    assert load() is None


def test_a_library_of_something_else_is_not_used(elsewhere):
    """It loads, and has no functions of ours."""
    shutil.copyfile(np._core._multiarray_umath.__file__, event_decoder.LIBRARY)
    assert load() is None


@needs_compiler
def test_compiled_code_of_another_source_is_not_used(elsewhere):
    """Whatever the times of the files say, as in a copy."""
    compiled = Path(event_decoder.compiled_code()._name)
    shutil.copyfile(compiled, event_decoder.LIBRARY)
    assert load() is None
    shutil.copyfile(compiled.with_suffix(".c"), elsewhere)
    assert load() is not None
    elsewhere.write_text(elsewhere.read_text() + "/* changed */")
    assert load() is None
    elsewhere.unlink()  # as in a wheel
    assert load() is not None


def test_events_at_the_end_of_the_bytes_are_read_whole():
    raw = field(4, field(1, 2**64 - 1)[:-1])
    for cut in range(1, len(raw) + 1):
        assert outcome(raw[:cut]) == outcome_without_compiler(raw[:cut])


def test_a_large_length_does_not_overflow():
    for size in (2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1):
        for raw in (b"\x22" + varint(size), field(4, b"\x22" + varint(size))):
            assert outcome(raw) == outcome_without_compiler(raw)
    assert np.iinfo(np.int64).max == 2**63 - 1
