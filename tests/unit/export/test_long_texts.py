"""Texts that every event of a trace repeats: the file stays small."""

import json

import pytest
from helpers.blow_up_traces import FORMS
from helpers.xspace import at, line, plane, space

from pytest_tfperf.export.formats import export_traces
from pytest_tfperf.export.tracks import args_of_names
from pytest_tfperf.trace.xspace import decode_trace


@pytest.mark.parametrize("form", ["events of long names", "long stats of events"])
def test_chrome_shortens_texts_that_events_share(tmp_path, form):
    path, out = tmp_path / "t.xplane.pb", tmp_path / "t.json"
    path.write_bytes(FORMS[form](500))
    export_traces([path], out)
    events = [event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "X"]
    texts = {text for event in events for text in (event["name"], event.get("args", {}).get("name", ""))}  # fmt: skip
    assert max(map(len, texts)) == 1000
    assert out.stat().st_size < 2000 * len(events)


def test_of_many_stats_of_a_name_thirty_are_shown():
    stats = {f"s{n:02}": n for n in range(40)} | {"long": "x" * 201, "kept": "x" * 200}
    (only,) = decode_trace(space(plane("p", line("l", at("x", 0, 1)), metadata={"x": stats}))).planes  # fmt: skip
    shown = args_of_names(only)["x"]
    assert list(shown) == ["kept", *(f"s{n:02}" for n in range(29))]
    assert shown["s07"] == "7"
