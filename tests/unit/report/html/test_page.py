"""The HTML report, read as a browser reads it: its structure, its numbers, what it may load, and names that mean harm."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from helpers import sample_run as shown_run
from helpers.builders import LAPTOP, SERVER, check, profile, record_of, value

from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.results import Verdict
from pytest_tfperf.runs import Run
from pytest_tfperf.values import PARTS, Advice, Column, Source, Step, Table, Value

CELLS = ("td", "th")
VOID = {"meta", "link", "input", "br", "hr", "img"}
NASTY = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;🤖\u202e"


class Page(HTMLParser):
    """Elements as (tag, attributes, text within), with what is not closed or closed out of turn."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.faults, self._open = [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag, _ in self._open]

    def _end_implied(self, *tags):
        """The end tags of cells, rows and their groups may be left out."""
        while self._open and self._open[-1][0] in tags:
            self._open.pop()

    def handle_starttag(self, tag, attrs):
        self._end_implied(
            *{"td": CELLS, "th": CELLS, "tr": (*CELLS, "tr"), "tbody": (*CELLS, "tr", "thead")}.get(
                tag, ()
            )
        )
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        if tag not in VOID:
            self._open.append((tag, element))

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        self._end_implied(*(*CELLS, "tr", "tbody", "thead") if tag == "table" else ())
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")
        else:
            self._open.pop()

    def handle_data(self, data):
        data = f" {data} " if self._open and self._open[-1][0] in ("td", "th", "pre") else data
        for _, element in self._open:
            element[2] += data

    def all(self, tag, **attributes):
        return [
            one
            for one in self.elements
            if one[0] == tag
            and all(one[1].get(key) == wanted for key, wanted in attributes.items())
        ]

    def texts(self, tag, **attributes):
        return [" ".join(text.split()) for _, _, text in self.all(tag, **attributes)]


def page_of(*tests, folder=None, commit=""):
    return Page(
        render_html(Run(created="2026-01-31T12:00:00+00:00", tests=tests, commit=commit), folder)
    )


def step(number, **parts):
    parts_s = dict.fromkeys(PARTS, 0.0) | parts
    return Step(name=f"train {number}", period_s=sum(parts_s.values()), parts_s=parts_s)


def ops(n_rows, name="MatMul", n_more=0):
    columns = (
        Column("op", "op"),
        Column("type", "type"),
        Column("occurrences", "occurrences", "count"),
        Column("self_s", "self", "s"),
        Column("share", "share", "0..1"),
        Column("note", "note"),
    )
    rows = tuple(
        (f"{name}_{n}", "MatMul", 2, 0.001 / (n + 1), 0.5 / (n + 1), None) for n in range(n_rows)
    )
    return Table(title="ops on the host", columns=columns, rows=rows, n_more=n_more)


STEPS = (step(1, input=0.001, device_compute=0.003), step(2, input=0.002))
TIMED = {
    "before": 0.010,
    "after": 0.012,
    "ratio": 1.2,
    "low": 1.1,
    "high": 1.3,
    "confidence": 0.995,
    "smallest": 0.08,
    "runs": [0.010, 0.0102],
    "anchor": 0.0099,
}


def full_test(key="test_step", **fields):
    measured = replace(
        profile(
            "train",
            notes=("a note",),
            steps=STEPS,
            step_time=value("step_time", 0.012, settled=True, n_dropped=1),
            retraces=2,
            input_bound=value(
                "input_bound", 0.19, low=0.1, high=0.25, where="90 % in Map", **{"try": "prefetch"}
            ),
        ),
        tables={
            "host_ops": ops(4),
            "own": Table.of("own table", [Column("what", "what")], [("this",)]),
        },
        advice=(
            Advice(
                what="use bfloat16", because="half_precision is 0", win_s=0.004, look="the op table"
            ),
        ),
        blocks_s=(0.5, 0.011, 0.012, 0.013),
    )
    checks = [
        check("PASS", "retraces", "retraces is 2, as in the baseline", "train", "baseline"),
        check("FAIL", name="train"),
        replace(
            check(
                "REGRESSION",
                "step_time",
                "step_time is 12 ms",
                "train",
                "baseline",
                advice=(("try", "less"),),
            ),
            detail=TIMED,
        ),
    ]
    checks[0] = replace(checks[0], detail={"before": 2, "after": 2})
    return record_of(measured, key=key, checks=checks, **fields)


CHANGED = {
    **TIMED,
    "runs": [0.010, 0.0101, 0.0099, 0.010, 0.0101, 0.0099, 0.012, 0.0121, 0.0119, 0.012],
    "commits": [f"commit{n}" for n in range(10)],
    "tolerance": 0.05,
}


def historic(name, commits=(), **detail):
    """A test with a history whose level changed at its seventh run."""
    changed = {**CHANGED, **detail} | ({"commits": list(commits)} if commits else {})
    compared = replace(check("PASS", "step_time", kind="baseline"), detail=changed)
    return record_of(profile(step_time=0.012), key=name, checks=[compared])


def test_the_page_is_well_formed_and_loads_nothing():
    for tests in [
        [],
        [record_of()],
        [record_of(profile())],
        [full_test()],
        [
            full_test(),
            full_test("test_other", environment=SERVER),
            record_of(outcome="failed", environment={}),
        ],
        list(shown_run.a_run().tests),
        [
            full_test(NASTY, file=NASTY),
            record_of(checks=[check("FAIL", sentence=NASTY)], key=NASTY),
        ],
        [historic("test_a", [f"{NASTY}{n}" for n in range(10)]), historic("test_b", [""] * 10)],
    ]:
        page = page_of(*tests)
        assert page.faults == [], tests
        ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), tests
        links = [
            attributes[key]
            for _, attributes, _ in page.elements
            for key in ("href", "src", "data", "action")
            if key in attributes
        ]
        assert {link for link in links if not link.startswith("#")} == {"data:,"}, (
            tests
        )  # the icon, so that none is asked for
        assert {link[1:] for link in links if link.startswith("#")} <= set(ids), tests
        assert not any(
            key.startswith("on") or key == "style"
            for _, attributes, _ in page.elements
            for key in attributes
        ), tests
        filled = {
            attributes[key]
            for _, attributes, _ in page.elements
            for key in ("fill", "stroke")
            if "url" in attributes.get(key, "")
        }
        assert {place.removeprefix("url(#").removesuffix(")") for place in filled} <= set(ids), (
            tests
        )


def test_the_content_policy_allows_only_its_own_style_and_script():
    page = page_of(full_test(NASTY))
    ((_, meta, _),) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    policy = dict(directive.strip().split(" ", 1) for directive in meta["content"].split(";"))
    for tag in ("style", "script"):
        ((_, _, content),) = page.all(tag)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert "connect-src" not in policy
    before = page.elements.index(page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0])
    assert before < page.elements.index(page.all("style")[0])


def test_the_steps_have_their_times_and_shares():
    page = page_of(full_test())
    assert {"step_time 12 ms", "baseline 10 ms"} < set(page.texts("span"))
    assert "15 ms" in page.texts("text")
    parts = [row for row in page.texts("tr") if row.startswith(("input ", "device compute "))]
    assert parts == ["input 1.5 ms 50 %", "device compute 1.5 ms 50 %"]


def test_samples_are_shown_beside_the_baseline():
    page = page_of(full_test())
    assert "time of a step: timed blocks, without 1 of a slow start" in page.texts("figcaption")
    assert "median 12 ms" in page.texts("span")
    assert "anchor 9.9 ms" in page.texts("span")
    assert "Changes of level are not known: 11 runs show one, and there are 3." in page.texts("p")


def test_a_time_of_processors_is_drawn_as_such_and_not_as_the_step_s():
    compared = replace(check("REGRESSION", "step_cpu_time", kind="baseline"), detail=CHANGED)
    test = record_of(profile(step_time=0.003), key="test_step", checks=[compared])
    page = page_of(test)
    assert "step cpu time history (round: this run)" in page.texts("figcaption")
    assert not [text for text in page.texts("span") if text.startswith("baseline ")]


def test_a_change_of_level_is_marked_and_told():
    page = page_of(historic("test_step"))
    assert "since commit commit6: 20 % slower" in page.texts("title")
    assert "Since commit commit6: 20 % slower, 10 ms to 12 ms (p = 0.0046)." in page.texts("p")
    assert "step time history (round: this run)" in page.texts("figcaption")
    unknown = page_of(historic("test_step", anchor=None, tolerance=None, low=None))
    assert (
        "step time history (round: this run); not known: anchor, limit, interval of this run"
        in unknown.texts("figcaption")
    )


@pytest.mark.parametrize("run", [0, -0.01])
def test_a_run_without_time_in_a_damaged_file_breaks_no_page(run):
    page = page_of(historic("test_step", runs=[run, *CHANGED["runs"][1:]]))
    assert any("Changes of level are not known: a value is " in one for one in page.texts("p"))


def test_the_overview_has_a_small_history_where_there_is_one():
    page = page_of(historic("test_old"), record_of(profile(step_time=0.01), key="test_new"))
    heads = page.texts("th")
    assert heads[:6] == ["test", "verdict", "checks", "step", "history", "ratio"]
    assert [attributes["class"] for _, attributes, _ in page.all("svg", role="img")][:1] == [
        "mini runs"
    ]
    label = "10 recorded runs of 9.9 ms to 12.1 ms, median 10.1 ms, now 12 ms, anchor 9.9 ms"
    assert page.texts("title").count(label) == 1
    rows = [text for text in page.texts("tr") if "test_new" in text]
    assert rows == ["test_new· passed 10 ms"]
    without = page_of(record_of(profile(), key="a"), record_of(profile(), key="b"))
    assert "history" not in without.texts("th")


def test_the_overview_says_which_checks_failed_or_are_not_decided():
    failed = [check("FAIL", "retraces"), check("UNKNOWN"), check("INCONCLUSIVE", "step_time")]
    open_checks = [check("INCONCLUSIVE", "step_time"), check("PASS")]
    page = page_of(
        record_of(checks=failed, key="a"),
        record_of(checks=open_checks, key="b"),
        record_of(checks=[check("PASS")] * 3, key="c"),
    )
    assert page.texts("tr")[:4] == [
        "test verdict checks",
        "a✗ FAIL2 of 3 failed: retraces, input_bound",
        "b~ INCONCLUSIVE1 of 2 not decided: step_time",
        "c✓ PASS3 passed",
    ]


def test_missing_times_have_a_reason():
    page = page_of(record_of(profile()))
    assert "Times of single steps are not known: not measured." in page.texts("p")
    page = page_of(record_of(profile(step_time=0.01)))
    assert (
        "Times of single steps are not known: no step was timed without the profiler."
        in page.texts("p")
    )


def test_steps_of_a_trace_stand_for_times_without_the_profiler():
    captions = page_of(record_of(profile(steps=STEPS))).texts("figcaption")
    assert "time of a step: traced steps" in captions
    assert "time of a step: traced steps" not in page_of(full_test()).texts("figcaption")


def test_turns_against_a_ref_are_two_series():
    turns = {
        "before": 0.010,
        "after": 0.011,
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.2,
        "turns": [[0.011, 0.010], [0.012, 0.0105]],
    }
    compared = replace(
        check("PASS", "step_time", "1.1 times the ref", kind="against"), detail=turns
    )
    page = page_of(record_of(profile(steps=STEPS, step_time=0.019), checks=[compared]))
    keys = page.texts("span")
    assert {"median of this version 11.5 ms", "of the other 10.2 ms"} <= set(keys)
    # over the steps; 19 ms were not in turns
    assert {"in turns 11 ms", "other version 10 ms"} < set(keys)
    assert "timed 19 ms" not in keys
    assert "step_time 10 ms 11 ms × 1.100 1.050 to 1.200 ✓ PASS" in page.texts("tr")


def test_pictures_name_what_is_not_known():
    turns = {"before": 0.01, "after": 0.011, "ratio": 1.1, "turns": [[0.011, 0.010]] * 3}
    differing = turns | {"differences": [{"what": "3 new Transpose", "seconds": None}]}
    compared = replace(check("INCONCLUSIVE", "step_time", kind="against"), detail=differing)
    held = Table.of(
        "memory over train 1",
        [Column("into_step_s", "into the step", "s"), Column("held", "held", "bytes")],
        [(0.0, None), (0.001, 2**20)],
    )
    columns = ("op", "self_s", "flop_rate", "flop_per_byte")
    ops_of_device = Table.of(
        "roofline", [Column(key, key) for key in columns], [("dot", 0.001, 1e12, 10.0)]
    )
    measured = replace(profile(), tables={"memory_over_step": held, "roofline": ops_of_device})
    page = page_of(record_of(measured, checks=[compared]))
    captions = page.texts("figcaption")
    assert "ratio of each pair of turns, by process pair; not known: its interval" in captions
    assert "memory over a step; not known in the gaps" in captions
    assert (
        "roofline: FLOP/s of each op by its FLOPs per byte; size: time; not known: the roof"
        in captions
    )
    assert "Not known: the parts of the step before." in page.texts("p")


def test_changed_values_are_listed_and_unchanged_ones_counted():
    page = page_of(full_test())
    assert (
        "step_time 10 ms 12 ms × 1.200 1.100 to 1.300, 99.5 % interval ▲ REGRESSION"
        in page.texts("tr")
    )
    assert "compared; 1 other is as before" in page.texts("caption")


def test_differences_between_traces_are_listed():
    differing = {
        **TIMED,
        "differences": [
            {"what": "3 new Transpose <on> the GPU", "seconds": 0.0012},
            {"what": "a note", "seconds": None},
        ],
    }
    page = page_of(
        record_of(profile(), checks=[replace(check("REGRESSION", "step_time"), detail=differing)])
    )
    assert page.texts("li")[:2] == ["+1.2 ms: 3 new Transpose <on> the GPU", "a note"]


def test_a_custom_metric_is_in_the_glossary():
    metric = Metric("cache_hits", "count", "higher", "program", "lookups that were hits")
    own = replace(
        profile(cache_hits=Value(number=3.0, unit="count", source=Source.OWN)),
        own={"cache_hits": metric},
    )
    page = page_of(record_of(own))
    assert "cache_hits 3 own" in page.texts("tr")
    assert (page.texts("dt")[-1], page.texts("dd")[-1]) == ("cache_hits", "lookups that were hits")


def test_messages_are_worst_first_and_whole():
    messages = page_of(full_test()).texts("div", **{"class": "message bad"})
    assert messages == [
        "✗ FAIL input_bound, limit input_bound is 9 %, above the limit of 5 %",
        "▲ REGRESSION step_time, baseline step_time is 12 ms try: less",
    ]


def test_metrics_have_value_origin_verdict_and_cause():
    rows = page_of(full_test()).texts("tr")
    assert "input_bound 10 %…25 % trace at most 5 % ✗ FAIL 90 % in Map; prefetch" in rows
    assert "retraces 2 trace ✓ PASS" in rows


def test_unknown_metrics_are_named_with_their_reason():
    page = page_of(record_of(profile(retraces=0)))
    (known,) = [row for row in page.texts("tr") if row.startswith("retraces")]
    assert known == "retraces 0 trace"
    (reason,) = page.texts("li")
    assert reason.endswith(": not measured")
    assert set(reason.removesuffix(": not measured").split(", ")) == set(METRICS) - {"retraces"}


def test_reasons_that_hold_for_all_are_told_once():
    page = page_of(
        record_of(profile(retraces=0)), record_of(profile(retraces=0, eager_ops=1), key="test_b")
    )
    assert sum(text.endswith(": not measured") for text in page.texts("li")) == 2
    alike = page_of(record_of(profile(retraces=0)), record_of(profile(retraces=1), key="test_b"))
    assert sum(text.endswith(": not measured") for text in alike.texts("li")) == 1
    n_unknown = len(METRICS) - 1
    assert (
        alike.texts("li")[:2] == [f"{n_unknown} of them for reasons that hold for every test"] * 2
    )
    assert "Not known for any test that is shown in full" in alike.texts("summary")


def test_a_cause_of_several_metrics_is_told_once():
    where = {"where": "90 % in Map", "try": "prefetch"}
    page = page_of(
        record_of(
            profile(
                input_bound=value("input_bound", 0.2, **where),
                input_wait=value("input_wait", 0.01, **where),
                retraces=value("retraces", 1, where="train"),
            )
        )
    )
    rows = page.texts("tr")
    assert "input_bound 20 % trace 90 % in Map; prefetch" in rows
    assert "input_wait 10 ms trace as for input_bound" in rows
    assert "retraces 1 trace train" in rows


def test_advice_notes_and_every_table_are_there():
    page = page_of(full_test())
    assert (
        "up to 4 ms a step: use bfloat16 (half_precision is 0; look at the op table)"
        in page.texts("li")
    )
    assert "a note" in page.texts("li")
    assert {"ops on the host", "own table"} <= set(page.texts("caption"))
    assert "MatMul_1 MatMul 2 500 µs 25 %" in page.texts("tr")
    assert "note" not in page.texts("th")  # a column with nothing in it


def test_urgent_tests_come_first_and_are_expanded():
    tests = [
        record_of(key="test_quiet"),
        record_of(checks=[check("PASS")], key="test_passed"),
        record_of(checks=[check("NEW")], key="test_new"),
        record_of(checks=[check("PASS"), check("UNKNOWN")], key="test_unknown"),
        record_of(outcome="failed", key="test_broken"),
        record_of(checks=[check("FAIL")], key="test_failed", outcome="failed"),
        record_of(checks=[check("INCONCLUSIVE")], key="test_undecided"),
    ]
    page = page_of(*tests)
    names = [
        "test_failed",
        "test_unknown",
        "test_broken",
        "test_undecided",
        "test_new",
        "test_passed",
        "test_quiet",
    ]
    assert [text.split("::")[1] for text in page.texts("h2")] == names
    assert [
        "open" in attributes for _, attributes, _ in page.all("details", **{"class": "test"})
    ] == [True] * 3 + [False] * 4
    targets = [
        attributes["href"]
        for _, attributes, _ in page.all("a")
        if attributes["href"].startswith("#t") and attributes["href"] != "#tests"
    ]
    assert targets == ["#t6", "#t4", "#t5", "#t7", "#t3", "#t2", "#t1"]


def test_tests_with_one_verdict_are_sorted_by_slow_down():
    def slower(key, ratio):
        return record_of(
            profile(),
            key=key,
            checks=[replace(check("REGRESSION", "step_time"), detail={**TIMED, "ratio": ratio})],
        )

    page = page_of(slower("test_somewhat", 1.1), slower("test_much", 2.0), slower("test_more", 1.3))
    assert [text.split("::")[1] for text in page.texts("h2")] == [
        "test_much",
        "test_more",
        "test_somewhat",
    ]


def test_a_verdict_is_a_sign_and_a_word_besides_its_colour():
    for verdict in Verdict:
        (shown,) = {
            text
            for text in page_of(record_of(checks=[check(verdict.value)])).texts("span")
            if verdict.value in text
        }
        sign, word = shown.split()
        assert (len(sign), word) == (1, verdict.value), verdict


def test_every_part_has_a_colour_and_lines_that_no_other_has():
    page = page_of()
    patterns = [attributes["id"] for _, attributes, _ in page.all("pattern")]
    parts = [*PARTS, "waiting"]
    assert patterns == [f"{kind}-{part}" for part in parts for kind in "hb"]
    drawn = re.findall(r"<pattern .*?</pattern>", render_html(Run(created="", tests=())))
    without_colours = {re.sub(r'id="[^"]*"|fill="#[^"]*"', "", one) for one in drawn}
    assert len(without_colours) == len(patterns)


def test_the_environment_is_told_once_or_test_by_test_where_it_differs():
    one = page_of(record_of(), record_of(key="test_other"))
    assert sum("Laptop 3000" in text for text in one.texts("p")) == 1
    unprofiled = record_of(key="test_skips", environment={})
    two = page_of(record_of(), record_of(key="test_other", environment=SERVER), unprofiled)
    assert any(text.startswith("machine 1: ") and "Laptop 3000" in text for text in two.texts("p"))
    assert [text for text in two.texts("p") if text.startswith("on machine")] == [
        "on machine 1",
        "on machine 2",
    ]


@pytest.mark.parametrize(("key", "file"), [("k" * 101, "f.py"), ("k", "f" * 61)])
def test_a_name_that_is_cut_is_whole_in_a_title(key, file):
    ((_, attributes, text),) = page_of(record_of(key=key, file=file)).all("h2")
    assert "…" in text
    assert attributes["title"] == f"{file}::{key}"


def test_very_long_names_are_cut_and_whole_in_a_title():
    long = "x" * 5000 + "y" * 5000
    page = page_of(record_of(replace(profile(), tables={"host_ops": ops(1, long)}), key=long))
    titles = [attributes["title"] for _, attributes, _ in page.elements if "title" in attributes]
    assert f"test_model.py::{long}" in titles
    assert f"{long}_0" in titles
    assert max(len(text) for text in page.texts("td")) <= 60
    assert max(len(text) for text in page.texts("h2")) <= 200


def test_a_very_long_text_leaves_room_for_the_others():
    long = "n" * 5000
    measured = replace(
        profile(long, notes=(long,), input_bound=0.1),
        ended=long,
        advice=(Advice(what=long, because=long, win_s=None, look=long),),
    )
    page = page_of(
        record_of(measured, environment={"platform": long, "machine": {long: long}}), commit=long
    )
    assert (
        max(
            len(page.texts(tag)[n])
            for tag in ("li", "p", "h3", "code")
            for n in range(len(page.texts(tag)))
        )
        < 2000
    )


def test_links_lead_from_the_report_to_kept_files(tmp_path):
    kept = tmp_path / "kept here" / "host.xplane.pb"
    measured = replace(profile(), files={"trace": str(kept), "timeline": "javascript:alert(1)"})
    page = page_of(record_of(measured), folder=tmp_path / "reports")
    links = {text: attributes["href"] for _, attributes, text in page.all("a")}
    assert links["trace"] == "../kept%20here/host.xplane.pb"
    assert links["timeline"] == "javascript%3Aalert%281%29"  # a file of that name, and no script
    assert page_of(record_of(measured)).all("a", title=str(kept))[0][1]["href"] == kept.as_uri()


def test_a_table_is_cut_with_a_count():
    page = page_of(record_of(replace(profile(), tables={"host_ops": ops(60, n_more=5)})))
    assert sum(row.startswith("MatMul_") for row in page.texts("tr")) == 50
    assert "and 15 more" in page.texts("p")


def crowded(number, text=""):
    steps = tuple(
        step(
            n,
            input=0.001 + n / 1e5,
            host_compute=0.002,
            device_compute=0.004,
            other=0.0005,
            output=0.0003,
        )
        for n in range(20)
    )
    keys = [
        "alignment",
        "host_ops",
        "device_ops",
        "functions",
        "kernels",
        "op_profile",
        "executables",
        "outside_xla",
        "graph",
        "memory",
    ]
    measured = replace(
        profile(
            **{
                name: value(
                    name,
                    0.5 + number / 1000,
                    where=f"something of {name} that takes some words to say {text}",
                )
                for name in METRICS
            }
        ),
        steps=steps,
        blocks_s=tuple(0.5 + n / 1000 for n in range(50)),
        tables={
            key: replace(ops(50, f"model/layer_{number}/dense/MatMul{text}"), title=key)
            for key in keys
        },
        advice=(
            Advice(
                what="do what takes a sentence to say " + text,
                because="some number is large",
                win_s=0.1,
                look="a table",
            ),
        )
        * 4,
    )
    timed = replace(
        check("REGRESSION", "step_time", "step_time is more " * 10, kind="baseline"),
        detail={**CHANGED, "commits": [f"{n:012x}" for n in range(10)]},
    )
    same = [
        replace(check("PASS", name, kind="baseline"), detail={"before": 1, "after": 1})
        for name in METRICS
    ]
    return record_of(measured, key=f"test_{number}{text}", checks=[timed, *same])


def test_a_hundred_tests_are_less_than_900_kilobytes():
    page = render_html(
        Run(created="", tests=tuple(crowded(number, "ü" * 70) for number in range(100)))
    )
    assert len(page.encode()) < 900_000
    assert page.count('<svg class="chart steps"') == 100
    assert page.count('<svg class="chart history"') == 100
    assert page.count(", commit 000000000000") == 6  # of the profiles that are shown in full
    assert "are left out to keep the page small" in page


def test_ten_tests_have_six_in_full():
    page = page_of(*(crowded(number) for number in range(10)))
    assert sum(caption == "metrics" for caption in page.texts("caption")) == 6
    assert sum("are left out to keep" in text for text in page.texts("p")) == 4


def test_few_tests_have_all_their_rows():
    page = page_of(*(crowded(number) for number in range(3)))
    assert sum(row.startswith("model/layer_") for row in page.texts("tr")) == 3 * 10 * 50
    assert not any("are left out to keep" in text for text in page.texts("p"))


def test_the_page_is_readable_without_javascript():
    page = page_of(full_test(), record_of(environment=LAPTOP))
    ((_, tools, _),) = page.all("div", **{"class": "tools"})
    assert "hidden" in tools  # what would do nothing is not shown
    hidden = [one for one in page.elements if "hidden" in one[1]]
    assert hidden == [next(one for one in page.elements if one[1].get("class") == "tools")]


def test_limits_that_a_run_left_out_are_no_pass():
    tested = record_of(profile(), checks=[check("PASS")])
    assert "All checks passed" in page_of(tested).texts("p")
    some = page_of(replace(tested, n_unchecked=2))
    assert "No check failed, and not all was checked" in some.texts("p")
