"""Traces in the formats of other viewers, read back by decoders of their own."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from helpers.xspace import MS, Ref, Uint, at, event, line, plane, space
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tfperf.cli.main import main
from pytest_tfperf.errors import ExportError, TraceError
from pytest_tfperf.export.formats import export_traces

ENDINGS = (".json", ".json.gz")
HOST = "/host:CPU"


def exported(folder, ending, *traces):
    paths = [folder / f"host_{number}.xplane.pb" for number in range(len(traces))]
    for path, trace in zip(paths, traces, strict=True):
        path.write_bytes(trace)
    out = folder / f"out{ending}"
    export_traces(paths, out)
    return out


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
        assert content.startswith(b'{"displayTimeUnit"'), ending


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
    slices, _ = chrome(tmp_path, trace)
    ((_, _, _, args),) = slices[HOST, "t"]
    assert args == {
        "text": "plain",
        "ref": "referred",
        "small": -7,
        "double": 2.5,
        "bytes": "3 bytes",
        "big": "18446744073709551615",
        "negative": "-1152921504606846976",
        "infinite": "inf",
    }


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
        slices, _ = chrome(tmp_path, trace)
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
    slices, _ = chrome(tmp_path, trace)
    names = {track: sorted(row[0] for row in rows) for (_, track), rows in slices.items()}
    assert names == {"t": ["a", "c", "d", "e"], "t (2)": ["b"]}


def counted(folder, trace):
    _, others = chrome(folder, trace)
    return [(e["name"], picoseconds(e["ts"]), e["args"]) for e in others if e["ph"] == "C"]


def test_memory_is_a_counter_for_each_allocator(tmp_path):
    events = [
        event("MemoryAllocation", 5000, 0, allocator_name="GPU_0_bfc", bytes_allocated=100),
        event("MemoryDeallocation", 9000, 0, allocator_name="GPU_0_bfc", bytes_allocated=0),
        event("MemoryAllocation", 7000, 0, allocator_name="mklcpu", bytes_allocated=3),
    ]
    trace = space(plane(HOST, line("t", *events)))
    assert counted(tmp_path, trace) == [
        ("memory GPU_0_bfc", 5000, {"bytes": 100}),
        ("memory GPU_0_bfc", 9000, {"bytes": 0}),
        ("memory mklcpu", 7000, {"bytes": 3}),
    ]


def test_memory_of_a_tpu_is_a_counter_for_each_core(tmp_path):
    events = [
        event("MemoryAllocation", core * 1000, 0, bytes_allocated=core + 7, index_on_host=core)
        for core in range(2)
    ]
    assert counted(tmp_path, space(plane(HOST, line("t", *events)))) == [
        ("memory TPU:0", 0, {"bytes": 7}),
        ("memory TPU:1", 1000, {"bytes": 8}),
    ]


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
        assert ".json, .json.gz, .txt" in capsys.readouterr().err, name
        assert not (tmp_path / name).exists(), name


def test_perfettos_endings_name_the_one_to_take(tmp_path):
    for name in ("out.pftrace", "out.perfetto-trace"):
        with pytest.raises(ExportError, match=r"\.json\.gz file instead, which ui\.perfetto\.dev"):
            export_traces([tmp_path / "missing.xplane.pb"], tmp_path / name)


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
