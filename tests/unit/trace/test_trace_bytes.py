"""Trace files that gzip has compressed, whole, cut, damaged or made to fill the memory; mapped ones."""

import gzip
import mmap
import random
import re
import zlib
from contextlib import suppress

import pytest
from helpers.traces import SYNTHETIC
from helpers.xspace import MS, event, field, line, plane, space, varint

from pytest_tfperf.errors import TraceError
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.protobuf import PADDING
from pytest_tfperf.trace import file as trace_file
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import decode_trace, read_trace

PLAIN = SYNTHETIC / "g1_gpu_modern.xplane.pb"


def columns(trace):
    """Return everything that is decoded."""
    return [
        (
            part.name,
            part.lines,
            Events.of(part).names,
            part.start_ps.tolist(),
            part.duration_ps.tolist(),
            [part.message.slice(*span) for span in part.stats],
            [
                Events.of(part).stats.text(place)
                for place in range(Events.of(part).stats.owner.size)
            ],
        )
        for part in trace.planes
    ]


def refusal(path):
    """Return the message with which a file is refused: one sentence, with the file's name."""
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(gzip.compress(PLAIN.read_bytes()))
    return path


def test_a_compressed_trace_equals_the_plain_one(tmp_path):
    packed = tmp_path / "host.xplane.pb.gz"
    paths = sorted(SYNTHETIC.glob("*.xplane.pb"))
    assert len(paths) > 10
    for plain in paths:
        raw = plain.read_bytes()
        packed.write_bytes(gzip.compress(raw))
        expected = columns(read_trace(plain))
        assert columns(read_trace(packed)) == expected, plain.name
        assert columns(decode_trace(gzip.compress(raw))) == expected, plain.name


def test_a_compressed_trace_has_the_profile_of_the_plain_one(packed):
    profiles = [analyse_trace(read_trace(path)).profile for path in (packed, PLAIN)]
    assert repr(profiles[0].metrics) == repr(profiles[1].metrics)
    assert profiles[0].tables.keys() == profiles[1].tables.keys()


def test_two_compressed_parts_are_one_trace(tmp_path):
    raw, path = PLAIN.read_bytes(), tmp_path / "host.xplane.pb.gz"
    path.write_bytes(gzip.compress(raw[:500]) + gzip.compress(raw[500:]))
    assert columns(read_trace(path)) == columns(read_trace(PLAIN))


def test_the_content_tells_whether_a_file_is_compressed(tmp_path, packed):
    named_gz = tmp_path / "plain.xplane.pb.gz"
    named_gz.write_bytes(PLAIN.read_bytes())
    named_pb = packed.rename(tmp_path / "packed.xplane.pb")
    assert columns(read_trace(named_gz)) == columns(read_trace(named_pb))


def test_a_cut_file_is_refused(packed):
    raw = packed.read_bytes()
    for kept in (2, 9, 18, 100, -1):
        packed.write_bytes(raw[:kept])
        assert re.search("ends after .* copy it again", refusal(packed)), kept


def test_a_damaged_file_is_refused_or_read(packed):
    """Any other error fails the test."""
    whole = packed.read_bytes()
    for seed in range(40):
        chance, raw = random.Random(seed), bytearray(whole)
        raw[chance.randrange(2, len(raw))] ^= 1 << chance.randrange(8)
        packed.write_bytes(raw)
        with suppress(TraceError):
            read_trace(packed)


def test_a_wrong_checksum_is_refused(packed):
    raw = bytearray(packed.read_bytes())
    raw[-8] ^= 1
    packed.write_bytes(raw)
    assert "is damaged" in refusal(packed)


def test_a_file_that_is_no_compressed_one_is_no_trace(tmp_path):
    path = tmp_path / "host.xplane.pb.gz"
    path.write_bytes(b"not gzip, nor a trace")
    assert "not an XSpace" in refusal(path)


def test_what_is_compressed_twice_is_no_trace(packed):
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    assert "not an XSpace" in refusal(packed)


def bomb(size):
    """Compress so many zero bytes, which need almost no memory."""
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])


def test_a_decompression_bomb_is_refused_at_the_limit(packed, monkeypatch):
    packed.write_bytes(bomb(64 << 20))
    read = []
    monkeypatch.setattr(trace_file, "_ALWAYS", 8 << 20)
    original = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda *given: read.append(given) or original(*given)
    )
    assert "become more than" in refusal(packed)
    assert len(read) < 20


@pytest.mark.parametrize("surplus", [0, 1])
def test_the_limit_counts_the_decompressed_bytes(packed, monkeypatch, surplus):
    size = PLAIN.stat().st_size
    monkeypatch.setattr(trace_file, "MOST_BYTES", size - surplus)
    if surplus:
        assert f"more than {size - 1:,}" in refusal(packed)
    else:
        assert read_trace(packed).planes


@pytest.mark.parametrize("surplus", [0, 1])
def test_the_ratio_is_that_of_the_file(packed, monkeypatch, surplus):
    ratio = -(-PLAIN.stat().st_size // packed.stat().st_size) - surplus
    monkeypatch.setattr(trace_file, "_ALWAYS", 0)
    monkeypatch.setattr(trace_file, "MOST_RATIO", ratio)
    if surplus:
        assert f"at most {ratio} for each" in refusal(packed)
    else:
        assert read_trace(packed).planes


def with_size(size):
    """Make a trace of exactly so many bytes, with long varints at its end."""
    times = (event("x", n * MS, MS, {"large": -1, "text": "y" * 40}) for n in range(50))
    raw = space(plane("/host:CPU", line("a", *times)))
    rest = size - len(raw)
    width = len(varint(rest))
    return raw + field(15, bytes(rest - 1 - width))


def test_a_mapped_trace_equals_a_read_one_whatever_its_last_page_holds(tmp_path, monkeypatch):
    for behind in (PADDING, PADDING + 1, mmap.PAGESIZE - 1, PADDING - 1, 1, 0):
        path = tmp_path / f"{behind}.xplane.pb"
        path.write_bytes(with_size(4 * mmap.PAGESIZE - behind))
        read = read_trace(path)
        with monkeypatch.context() as patch:
            patch.setattr(trace_file, "_MAPPED", 0)
            mapped = read_trace(path)
        is_mapped = isinstance(mapped.planes[0].message._buffer, mmap.mmap)
        assert is_mapped == (behind >= PADDING), behind
        assert columns(mapped) == columns(read), behind


def test_a_real_end_of_a_mapped_file_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "_MAPPED", 0)
    for plain in sorted(SYNTHETIC.glob("*.xplane.pb")):
        mapped = read_trace(plain)
        assert columns(mapped) == columns(decode_trace(plain.read_bytes()))
