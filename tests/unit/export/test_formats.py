"""Traces in the formats of other viewers, read back by decoders of their own."""

import gzip
import json
import struct
from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from helpers.xspace import MS, Ref, Uint, at, event, line, plane, space
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import ExportError, TraceError
from pytest_tfperf.export.formats import export_traces

ENDINGS = (".json", ".json.gz", ".perfetto-trace", ".pftrace")
HOST = "/host:CPU"


def exported(folder, ending, *traces):
    paths = [folder / f"host_{number}.xplane.pb" for number in range(len(traces))]
    for path, trace in zip(paths, traces, strict=True):
        path.write_bytes(trace)
    out = folder / f"out{ending}"
    export_traces(paths, out)
    return out


# Chrome


def chrome(folder, *traces):
    """(slices, other events) of the JSON: {(process, thread): [(name, start in ps, end in ps, args)]}."""
    events = json.loads(exported(folder, ".json", *traces).read_text(), parse_float=Decimal)[
        "traceEvents"
    ]
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"].endswith("_name")
    }
    slices = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            key = names["process_name", e["pid"], 0], names["thread_name", e["pid"], e["tid"]]
            slices[key].append(
                (
                    e["name"],
                    picoseconds(e["ts"]),
                    picoseconds(e["ts"] + e["dur"]),
                    e.get("args", {}),
                )
            )
    return dict(slices), [e for e in events if e["ph"] not in "XM"]


def picoseconds(microseconds):
    value = microseconds * 10**6
    assert value == int(value)
    return int(value)


# Perfetto: protos/perfetto/trace of google/perfetto


def fields(content):
    """(field number, value) of a protobuf message: integers, or the bytes of what has a length."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(content):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            length = {1: 8, 5: 4}.get(tag & 7) or (
                varint() if tag & 7 == 2 else pytest.fail(f"wire type {tag & 7}")
            )
            assert place + length <= len(content)
            yield tag >> 3, content[place : place + length]
            place += length


def message(content):
    return dict(fields(content))


class PerfettoTrace:
    """What a viewer makes of the packets: `slices` by (process, thread) in nanoseconds, `flows` and `counters`."""

    def __init__(self, content):
        self.processes, self.threads, self.counter_names = {}, {}, {}
        self.tracks, self.interned = {}, defaultdict(dict)
        self.slices, self.counters = defaultdict(list), defaultdict(list)
        self.flows = defaultdict(lambda: ([], []))
        self.open = defaultdict(list)
        self.times = defaultdict(int)
        for number, packet in fields(content):
            assert number == 1
            self._packet(packet)
        assert not any(self.open.values()), "every slice ends"

    def _packet(self, packet):
        content = message(packet)
        sequence = content.get(10)
        if 60 in content:
            self._descriptor(message(content[60]))
        if 13 in content and content[13] & 1:
            assert sequence not in self.tracks
            self.tracks[sequence] = message(message(content[59])[11])[11]
        if 12 in content:
            for index, entry in fields(content[12]):
                entry = message(entry)
                assert entry[1] not in self.interned[sequence, index]
                self.interned[sequence, index][entry[1]] = entry[2].decode()
        if 11 in content:
            assert content[13] & 2
            assert sequence in self.tracks
            self._event(sequence, content[8], list(fields(content[11])))

    def _descriptor(self, track):
        if 3 in track:
            process = message(track[3])
            self.processes[track[1]] = process[6].decode()
            self.pids = {**getattr(self, "pids", {}), track[1]: process[1]}
        elif 4 in track:
            thread = message(track[4])
            assert thread[1] == self.pids[track[5]]
            self.threads[track[1]] = self.processes[track[5]], thread[5].decode()
        else:
            assert message(track[8]) == {3: 3}
            self.counter_names[track[1]] = self.processes[track[5]], track[2].decode()

    def _event(self, sequence, time, event):
        content, track = dict(event), self.tracks[sequence]
        assert time >= self.times[track], "packets of a track are in the order of time"
        self.times[track] = time
        if content[9] == 1:
            key = self.threads[track]
            name = self.interned[sequence, 2][content[10]]
            args = dict(
                self._annotation(sequence, list(fields(value)))
                for number, value in event
                if number == 4
            )
            for field, side in ((47, 0), (48, 1)):
                for flow in (
                    struct.unpack("<Q", value)[0] for number, value in event if number == field
                ):
                    self.flows[flow][side].append((*key, name))
            self.open[track].append((name, time, args))
        elif content[9] == 2:
            name, start, args = self.open[track].pop()
            self.slices[self.threads[track]].append((name, start, time, args))
        else:
            assert content[9] == 4
            self.counters[self.counter_names[track]].append((time, content[30]))

    def _annotation(self, sequence, annotation):
        (number, name), (kind, value) = annotation
        assert number == 1
        read = {
            3: lambda: value,
            4: lambda: value - (1 << 64) if value >> 63 else value,
            5: lambda: struct.unpack("<d", value)[0],
            17: lambda: self.interned[sequence, 29][value],
        }
        return self.interned[sequence, 3][name], read[kind]()


def perfetto(folder, *traces):
    return PerfettoTrace(exported(folder, ".pftrace", *traces).read_bytes())


# both


STEPS = [at("train", n * 10, n * 10 + 8, step_num=n, _r=1) for n in range(3)]
WAITS = [at("IteratorGetNextOp::DoCompute", n * 10 + 1, n * 10 + 5) for n in range(3)]
PLAIN = space(plane(HOST, line("python", *STEPS), line("worker", *WAITS)))


def test_chrome_has_the_lines_and_the_steps_with_their_parts(tmp_path):
    slices, others = chrome(tmp_path, PLAIN)
    assert others == []
    assert slices[HOST, "python"] == [
        ("train", n * 10 * MS, (n * 10 + 8) * MS, {"step_num": n, "_r": 1}) for n in range(3)
    ]
    assert slices[HOST, "worker"] == [
        ("IteratorGetNextOp::DoCompute", (n * 10 + 1) * MS, (n * 10 + 5) * MS, {}) for n in range(3)
    ]
    assert slices["Steps", "from step_num"] == [
        ("train 0", 0, 10 * MS, {"input (ms)": 4, "other (ms)": 6}),
        ("train 1", 10 * MS, 20 * MS, {"input (ms)": 4, "other (ms)": 6}),
        ("train 2", 20 * MS, 28 * MS, {"input (ms)": 4, "other (ms)": 4}),
    ]


def test_perfetto_has_the_same(tmp_path):
    trace = perfetto(tmp_path, PLAIN)
    expected, _ = chrome(tmp_path, PLAIN)
    assert {
        key: [(n, s * 1000, e * 1000, a) for n, s, e, a in rows]
        for key, rows in trace.slices.items()
    } == expected


def test_the_ending_says_the_format_in_any_case(tmp_path):
    trace = tmp_path / "host.xplane.pb"
    trace.write_bytes(PLAIN)
    for ending in ENDINGS:
        content = exported(tmp_path, ending, PLAIN).read_bytes()
        again = tmp_path / f"again{ending.upper()}"
        assert main(["export", str(trace), "-o", str(again)]) == 0, ending
        assert again.read_bytes() == content, ending
        if ending == ".json.gz":
            content = gzip.decompress(content)
        begin = b'{"displayTimeUnit"' if "json" in ending else b"\x0a"
        assert content.startswith(begin), ending


def test_times_are_exact_to_the_picosecond(tmp_path):
    slices, _ = chrome(
        tmp_path,
        space(plane(HOST, line("t", event("a", 1, 2), event("b", 123_456_789_012_345_678, 1)))),
    )
    assert [row[:3] for row in slices[HOST, "t"]] == [
        ("a", 1, 3),
        ("b", 123_456_789_012_345_678, 123_456_789_012_345_679),
    ]


def test_no_time_is_negative(tmp_path):
    trace = space(plane(HOST, line("t", event("early", -5 * MS, MS), event("late", 0, MS))))
    slices, _ = chrome(tmp_path, trace)
    assert [row[:3] for row in slices[HOST, "t"]] == [("early", 0, MS), ("late", 5 * MS, 6 * MS)]
    assert [row[:3] for row in perfetto(tmp_path, trace).slices[HOST, "t"]] == [
        ("early", 0, 10**6),
        ("late", 5 * 10**6, 6 * 10**6),
    ]


STATS = {
    "text": "plain",
    "ref": Ref("referred"),
    "big": Uint(2**64 - 1),
    "negative": -(2**60),
    "small": -7,
    "double": 2.5,
    "bytes": b"\x00\xff\x80",
    "infinite": float("inf"),
}


def test_stats_are_args(tmp_path):
    trace = space(plane(HOST, line("t", event("a", 0, 5, STATS))))
    expected = {"text": "plain", "ref": "referred", "small": -7, "double": 2.5, "bytes": "3 bytes"}
    slices, _ = chrome(tmp_path, trace)
    ((_, _, _, args),) = slices[HOST, "t"]
    assert args == expected | {
        "big": "18446744073709551615",
        "negative": "-1152921504606846976",
        "infinite": "inf",
    }
    ((_, _, _, args),) = perfetto(tmp_path, trace).slices[HOST, "t"]
    assert args == expected | {"big": 2**64 - 1, "negative": -(2**60), "infinite": float("inf")}


def test_short_stats_of_a_name_are_args_of_its_events(tmp_path):
    metadata = {"fusion.1": {"hlo_category": "convolution", "hlo_text": "x" * 201}}
    slices, _ = chrome(
        tmp_path,
        space(
            plane(
                "/device:TPU:0",
                line("XLA Ops", event("fusion.1", 0, 5, run_id=3)),
                metadata=metadata,
            )
        ),
    )
    assert slices["/device:TPU:0", "XLA Ops"] == [
        ("fusion.1", 0, 5, {"hlo_category": "convolution", "run_id": 3})
    ]


NAMES = ['quote " and \\', "emoji 🚀 ü", "NUL \x00 in it", "line\nbreak", "</script>", ""]


def test_names_stay_as_they_are(tmp_path):
    for name in NAMES:
        trace = space(plane(HOST, line(name, event(name, 0, 5, {name or "-": name}))))
        for slices in (chrome(tmp_path, trace)[0], perfetto(tmp_path, trace).slices):
            found = [(key, row[0], row[3]) for key, rows in slices.items() for row in rows]
            assert found == [((HOST, name), name, {name or "-": name})], name


KERNELS = (
    line(
        "Stream #1",
        event("kernel", 100, 50, correlation_id=7),
        event("again", 200, 50, correlation_id=8),
    ),
)
LAUNCHES = [
    event("cuLaunchKernel", 0, 10, correlation_id=7),
    event("cuGraphLaunch", 20, 10, correlation_id=8),
    event("x", 40, 5, correlation_id=99),
]
GPUS = space(
    plane(HOST, line("python", *LAUNCHES)),
    plane("/device:GPU:0", *KERNELS),
    plane("/device:GPU:1", line("Stream #1", event("other kernel", 300, 50, correlation_id=8))),
)


def test_flows_lead_from_the_launch_to_the_kernel_on_each_device(tmp_path):
    pairs = {
        ((HOST, "python", "cuLaunchKernel"), ("/device:GPU:0", "Stream #1", "kernel")),
        ((HOST, "python", "cuGraphLaunch"), ("/device:GPU:0", "Stream #1", "again")),
        ((HOST, "python", "cuGraphLaunch"), ("/device:GPU:1", "Stream #1", "other kernel")),
    }
    trace = perfetto(tmp_path, GPUS)
    assert {(start, end) for (start,), (end,) in trace.flows.values()} == pairs
    slices, flows = chrome(tmp_path, GPUS)
    names = {
        (name, begin): (*key, name) for key, rows in slices.items() for name, begin, _, _ in rows
    }
    at_time = {begin: full for (_, begin), full in names.items()}
    ends = defaultdict(dict)
    for flow in flows:
        ends[flow["id"]][flow["ph"]] = at_time[picoseconds(flow["ts"])]
    assert {(pair["s"], pair["f"]) for pair in ends.values()} == pairs
    assert len(ends) == len(flows) / 2 == 3


def test_what_overlaps_without_nesting_has_a_track_beside(tmp_path):
    events = [
        event("a", 0, 10_000),
        event("b", 5_000, 10_000),
        event("c", 6_000, 2_000),
        event("d", 10_000, 1_000),
        event("e", 15_000, 0),
    ]
    trace = space(plane(HOST, line("t", *events)))
    for slices in (chrome(tmp_path, trace)[0], perfetto(tmp_path, trace).slices):
        names = {track: sorted(row[0] for row in rows) for (_, track), rows in slices.items()}
        assert names == {"t": ["a", "c", "d", "e"], "t (2)": ["b"]}


def test_memory_is_a_counter_for_each_allocator(tmp_path):
    events = [
        event("MemoryAllocation", 5000, 0, allocator_name="GPU_0_bfc", bytes_allocated=100),
        event("MemoryDeallocation", 9000, 0, allocator_name="GPU_0_bfc", bytes_allocated=0),
        event("MemoryAllocation", 7000, 0, allocator_name="mklcpu", bytes_allocated=3),
    ]
    trace = space(plane(HOST, line("t", *events)))
    expected = {(HOST, "memory GPU_0_bfc"): [(5, 100), (9, 0)], (HOST, "memory mklcpu"): [(7, 3)]}
    assert dict(perfetto(tmp_path, trace).counters) == expected
    _, others = chrome(tmp_path, trace)
    found = [(e["name"], picoseconds(e["ts"]), e["args"]) for e in others if e["ph"] == "C"]
    assert found == [
        ("memory GPU_0_bfc", 5000, {"bytes": 100}),
        ("memory GPU_0_bfc", 9000, {"bytes": 0}),
        ("memory mklcpu", 7000, {"bytes": 3}),
    ]


def test_memory_of_a_tpu_is_a_counter_for_each_core(tmp_path):
    events = [
        event("MemoryAllocation", core * 1000, 0, bytes_allocated=core + 7, index_on_host=core)
        for core in range(2)
    ]
    found = perfetto(tmp_path, space(plane(HOST, line("t", *events)))).counters
    assert dict(found) == {(HOST, "memory TPU:0"): [(0, 7)], (HOST, "memory TPU:1"): [(1, 8)]}


def test_hosts_stand_beside_each_other_aligned_by_their_steps(tmp_path):
    late = [at("train", n * 10 + 500, n * 10 + 508, step_num=n, _r=1) for n in range(1, 3)]
    traces = [
        space(plane(HOST, line("python", *STEPS)), hostnames=["one"]),
        space(plane(HOST, line("python", *late, at("before", 0, 1))), hostnames=["two"]),
    ]
    slices, _ = chrome(tmp_path, *traces)
    starts = {
        (process, name): start
        for (process, _), rows in slices.items()
        for name, start, _, _ in rows
    }
    assert starts["one Steps", "train 1"] == starts["two Steps", "train 1"]
    assert starts["two /host:CPU", "before"] == 0
    keys = Counter(
        (e["pid"], e["tid"])
        for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"]
        if e["name"] == "thread_name"
    )
    assert len(keys) == 4
    assert set(keys.values()) == {1}
    assert len({pid for pid, _ in keys}) == 4
    assert {key[0] for key in perfetto(tmp_path, *traces).slices} == {key[0] for key in slices}


def test_a_trace_without_events_gives_a_file_without_events(tmp_path):
    empty = space(plane(HOST), plane("/device:GPU:0", line("Stream #1")))
    for ending in ENDINGS:
        out = exported(tmp_path, ending, empty)
        if ending == ".json":
            assert json.loads(out.read_text())["traceEvents"] == []
        assert out.stat().st_size < 100, ending


def test_an_unknown_ending_names_the_valid_ones(tmp_path, capsys):
    trace = tmp_path / "host.xplane.pb"
    trace.write_bytes(PLAIN)
    for name in ("out.png", "out", "out.gz", "json"):
        assert main(["export", str(trace), "-o", str(tmp_path / name)]) == 2, name
        assert ".json, .json.gz, .perfetto-trace, .pftrace" in capsys.readouterr().err, name
        assert not (tmp_path / name).exists(), name


def test_what_cannot_be_written_is_status_2_and_named(tmp_path, capsys):
    (tmp_path / "host.xplane.pb").write_bytes(PLAIN)
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out.json"
    assert main(["export", str(tmp_path), "-o", str(out)]) == 2
    assert f"{out} cannot be written" in capsys.readouterr().err


def test_an_unreadable_trace_leaves_the_file_as_it_was(tmp_path):
    (tmp_path / "out.json").write_text("before")
    with pytest.raises(TraceError):
        exported(tmp_path, ".json", b"\x0a\xff")
    assert (tmp_path / "out.json").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host_0.xplane.pb", "out.json"]


def test_an_unknown_ending_is_an_error_before_anything_is_read(tmp_path):
    with pytest.raises(ExportError, match="no format has this ending"):
        export_traces([tmp_path / "missing.xplane.pb"], tmp_path / "out.png")


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 20_000), st.integers(0, 9_000)), max_size=12
)


@settings(max_examples=30, deadline=None)
@given(lines=st.lists(EVENTS, min_size=1, max_size=3))
def test_any_events_come_back_once_and_nested(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("export")
    trace = space(
        plane(
            HOST,
            *(line(f"line {n}", *(event(*e) for e in events)) for n, events in enumerate(lines)),
        )
    )
    expected = Counter(
        (f"line {n}", name, start, start + length)
        for n, events in enumerate(lines)
        for name, start, length in events
    )
    slices, _ = chrome(folder, trace)
    assert (
        Counter(
            (track.partition(" (")[0], *row[:3])
            for (_, track), rows in slices.items()
            for row in rows
        )
        == expected
    )
    for rows in slices.values():
        for one, (_, begin, end, _) in enumerate(rows):
            assert all(
                (b <= begin and end <= e) or e <= begin or end <= b for _, b, e, _ in rows[:one]
            )
    found = perfetto(folder, trace).slices
    in_ns = Counter({})
    for (track, name, start, end), number in expected.items():
        in_ns[track, name, start // 1000, end // 1000] += number
    assert (
        Counter(
            (track.partition(" (")[0], *row[:3])
            for (_, track), rows in found.items()
            for row in rows
        )
        == in_ns
    )
