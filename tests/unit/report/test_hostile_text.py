"""
Text that others wrote is text, in every output.

Every string of a run file (all that its schema names) and of a trace (names of planes, lines, events, stats and HLO, string
stats) holds what a terminal, a CI system, a spreadsheet, Markdown, HTML or DOT would act on.
"""

import csv
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.commands import CONTROL, check_terminal, ran, strict_json
from helpers.full_run import full_run
from helpers.fuzz import SPACE, decoded, encoded
from helpers.hlo import dot, module, op, parameters, trace_of
from helpers.made_traces import tpu
from helpers.sample_trace import sample_trace

from pytest_tfperf.report.ci import annotate, properties
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.results import BROKEN
from pytest_tfperf.runs import Run

SEEN = "zq"  # in every text: an output that lacks it shows nothing of what is tested
LONG = f"{SEEN} {'x' * 80}"  # harmless, and cut in the same places
PARTS = {
    "formula": f'={SEEN}+HYPERLINK("http://evil")',
    "controls": f"\x1b]0;{SEEN}\x07\x1b[31m\u202e\u2066\u200f\x9b31m\x85\x90\x00\x7f\x08\ud800\udfff\u2028",
    "commands": f"\n::error::{SEEN}\r\n::error file=x::y\n##[add-mask]z\r::set-output::",
    "old commands": f"##[add-mask]{SEEN}\n##[error]x",
    "markup": f"@octocat {SEEN} <img src=x onerror='a()'> ![x](http://evil/p.png) https://evil [x](javascript:a())",
    "rows": f"{SEEN}\n| x | @octocat |\n|---|---|\n",
    "ticks": f"`{SEEN}`` ``` @octocat\\`\n```\n@octocat <img src=x>\n~~~\n<!-- ",
    "page": f"</script>{SEEN}<script>a()</script></style></title>\" onload='a()' x='&lt;{{{{ 7*7 }}}} {{% raw %}} %s {{0}}",
    "graph": f'{SEEN}"]; evil [label="x\\" \\',
}
WHOLE = "".join(PARTS.values())
"""All of them, of which an output that cuts texts shows the ends."""
ENDS = PARTS["commands"].lstrip() + PARTS["markup"] + PARTS["ticks"]
"""Those that matter at an end; each part alone is for the night."""


@pytest.fixture(
    params=[
        pytest.param(WHOLE, id="all"),
        pytest.param(ENDS, id="ends"),
        *(pytest.param(PARTS[name], id=name, marks=pytest.mark.nightly) for name in PARTS),
    ]
)
def text(request):
    return request.param


def written(content, path):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """Reports of a run file with the same fields, by their ending."""
    path = written(full_run(LONG), tmp_path_factory.mktemp("harmless") / "run.json")
    return {ending: report(path, ending) for ending in ("md", "csv", "html")}


class TestRunFile:
    @pytest.fixture
    def run_file(self, text, tmp_path):
        return written(full_run(text), tmp_path / "run.json")

    def test_terminal(self, run_file, tmp_path, monkeypatch):
        other = written(full_run("other"), tmp_path / "other.json")
        for width, *words in (
            *((60, "show", run_file), (160, "show", "-v", run_file), (160, "accept", run_file)),
            *((160, "compare", other, run_file), (60, "compare", "-v", other, run_file)),
        ):
            monkeypatch.setenv("COLUMNS", str(width))
            _, out, err = ran(*words)
            assert SEEN in out + err, words
            check_terminal(out + err)

    def test_json(self, run_file):
        for words in (("show", run_file), ("compare", run_file, run_file)):
            out = ran(words[0], "--json", *words[1:])[1]
            check_json(out)
            check_terminal(out)

    def test_markdown(self, run_file, harmless):
        check_markdown(report(run_file, "md"), harmless["md"])

    def test_csv(self, run_file, harmless):
        check_csv(report(run_file, "csv"), harmless["csv"])

    def test_html(self, run_file, harmless):
        page = report(run_file, "html")
        assert not CONTROL.search(page)
        check_html(page, harmless["html"])

    def test_html_of_the_run_itself(self, text, tmp_path):
        """As pytest writes it: its texts were in no file before, and paths may be no UTF-8."""
        texts = (text.replace("\ud800", "").replace("\udfff", "\udcff"), LONG)
        pages = [render_html(Run.from_json(full_run(one), "run"), tmp_path) for one in texts]
        check_html(*pages)
        assert not re.search(r"[\x00-\x08\x0e-\x1f\x7f\u200f\u202a-\u202e\u2066-\u2069]", pages[0])
        pages[0].encode("utf-8")

    def test_json_report(self, run_file):
        check_json(report(run_file, "json"))

    def test_annotations(self, text):
        """They come from the run itself, whose texts were in no file."""
        run = Run.from_json(full_run(text, tests=("failed", "error")), "run")
        lines = annotate(run, Path("/root"), Path("/root"), lambda one: one.verdict in BROKEN)
        assert len(lines) == 2
        for line in lines:
            assert SEEN in line
            assert re.fullmatch(r"::error file=[^:,]+,line=1,title=[^:,]+::[^\n\r]+", line)
            assert not CONTROL.search(line)

    def test_junit(self, text):
        run = Run.from_json(full_run(text), "run")
        found = properties(profile for test in run.tests for profile in test.profiles)
        assert found
        for name, number in found:
            assert name.isprintable()
            assert isinstance(number, float)


def report(run_file, ending):
    """The text of a report in the form of this ending."""
    path = run_file.with_suffix(f".{ending}" if ending != "json" else ".out.json")
    status, out, err = ran("report", run_file, "-o", path)
    assert (status, out, err) == (0, "", "")
    return path.read_text("utf-8")


def check_json(text):
    """JSON escapes all that is not ASCII, and line feeds."""
    assert SEEN in text
    assert text.isascii()
    assert not CONTROL.search(text)
    strict_json(text)


def check_markdown(text, same):
    assert SEEN in text
    assert not CONTROL.search(text)
    prose = without_code(text)
    for hostile in ("octocat", "evil", "<img", "<script", "](", "<!--", "::", "##[", "=HYPER"):
        assert hostile not in prose, hostile
    assert set(re.findall(r"<[^>]*>", prose)) <= {
        f"<{end}{tag}>" for end in ("", "/") for tag in ("details", "summary")
    }
    assert structure(text) <= structure(same), "rows, headings or items that are none"


def without_code(markdown):
    """The text outside of code blocks and code spans, as CommonMark reads them."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        ticks = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if fence:
            closes = ticks and ticks[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif ticks and not (ticks[1][0] == "`" and "`" in line[ticks.end() :]):
            fence = ticks[1]
        else:
            lines.append(re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", line))
    assert not fence, "a code block does not end"
    return "\n".join(lines)


def structure(markdown):
    """Beginnings of lines outside of code, and the numbers of cells of rows."""
    lines = without_code(markdown).split("\n")
    return {
        (line[:2], len(re.findall(r"(?<!\\)\|", line)))
        for line in lines
        if line[:1] in set("|#->*+=~")
    }


def check_csv(text, same):
    assert SEEN in text
    assert not CONTROL.search(text)
    found, expected = (list(csv.reader(part.splitlines(keepends=True))) for part in (text, same))
    assert [len(row) for row in found] == [len(row) for row in expected]
    for row, others in zip(found, expected, strict=True):
        for cell, other in zip(row, others, strict=True):
            if cell != other:
                assert cell[0] not in "=+-@\t\r", cell


class Page(HTMLParser):
    """Tags with the names of their attributes, links, and comments of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.others = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(
            (tag, *(name for name, _ in attrs if name != "title"))
        )  # of a text that is cut
        self.links |= {value for name, value in attrs if name in ("href", "src", "action")}

    def handle_comment(self, data):
        self.others.append(data)


def check_html(text, same):
    assert SEEN in text
    page, other = Page(text), Page(same)
    assert page.tags - {("b",), ("i",), ("u",)} <= other.tags  # ends of a long name
    assert page.others == other.others
    for tag in ("script", "style", "title"):
        assert text.count(f"<{tag}") == text.count(f"</{tag}") == same.count(f"<{tag}"), tag
    schemes = {link for link in page.links if re.match(r"[a-z]+:|//", link, re.IGNORECASE)}
    assert schemes == {link for link in other.links if re.match(r"[a-z]+:|//", link)}
    assert not any("49" in part for part in re.findall(r"zq.{0,40}", text)), "a template was run"


KINDS = ("plane", "line", "event", "stat name", "stat text", "message")
"""The kinds of strings of a trace; messages are errors and host names."""


def renamed(raw, kind, name):
    """A trace in which every string of a kind is what `name` makes of it."""
    space = decoded(raw, SPACE)
    found = {one: [] for one in KINDS}
    found["message"] = [field for field in space if field[0] in (2, 3, 4)]
    for plane in messages(space, 1):
        found["plane"] += of_number(plane, 2)
        stats = messages(plane, 6)
        for line in messages(plane, 3):
            found["line"] += of_number(line, 2, 11)
            stats += [stat for event in messages(line, 4) for stat in messages(event, 4)]
        for number, named in ((4, "event"), (5, "stat name")):
            for metadata in [
                one for entry in messages(plane, number) for one in messages(entry, 2)
            ]:
                found[named] += of_number(metadata, 2, 4)
                stats += messages(metadata, 5)
        found["stat text"] += [field for stat in stats for field in of_number(stat, 5)]
    for field in found[kind]:
        field[2] = name(field[2].decode()).encode("utf-8", "replace")
    return encoded(space)


def messages(message, number):
    return [value for key, _, value in message if key == number and isinstance(value, list)]


def of_number(message, *numbers):
    return [field for field in message if field[0] in numbers and isinstance(field[2], bytes)]


def shown_trace(text):
    """A trace whose steps, stages, ops and kernels are found although their names are the text."""
    names = {
        "train": text,
        "model/dense/MatMul:MatMul": f"model/{text}:MatMul",
        "ampere_sgemm_64x32": text,
        "Iterator::Root::Prefetch::Map": f"Iterator::Root::Prefetch::{text}",
    }
    raw = renamed(sample_trace(), "event", lambda old: names.get(old, old))
    for kind in ("line", "stat text"):
        raw = renamed(raw, kind, lambda old: f"{text}{old}")
    return raw


class TestTrace:
    @pytest.fixture
    def trace(self, text, tmp_path):
        (tmp_path / "trace.pb").write_bytes(shown_trace(text))
        return tmp_path / "trace.pb"

    def test_terminal(self, trace, monkeypatch):
        for width, command, *options in (
            *((60, "analyze"), (160, "analyze", "-vv")),
            (160, "check", "-v", "--max-input-bound", "5%"),
        ):
            monkeypatch.setenv("COLUMNS", str(width))
            _, out, err = ran(command, trace, *options)
            assert SEEN in out, command
            assert not err, command
            check_terminal(out)

    def test_comparison(self, trace, tmp_path):
        (tmp_path / "other.pb").write_bytes(sample_trace(wait_ms=3, errors=(f"dropped {SEEN}",)))
        _, out, err = ran("compare", "-v", trace, tmp_path / "other.pb")
        check_terminal(out + err)
        check_terminal(ran("compare", "--json", trace, tmp_path / "other.pb")[1])

    def test_json(self, trace):
        out = ran("analyze", "--json", trace)[1]
        check_json(out)
        check_terminal(out)

    def test_html(self, trace, tmp_path):
        pages = []
        for name, raw in (
            ("page", trace.read_bytes()),
            ("same", shown_trace(LONG)),
        ):
            (tmp_path / f"{name}.pb").write_bytes(raw)
            ran("analyze", tmp_path / f"{name}.pb", "-o", tmp_path / f"{name}.html")
            pages.append((tmp_path / f"{name}.html").read_text("utf-8"))
        assert not CONTROL.search(pages[0])
        check_html(*pages)

    def test_chrome_export(self, trace, tmp_path):
        assert ran("export", trace, "-o", tmp_path / "trace.json") == (0, "", "")
        check_json((tmp_path / "trace.json").read_text("utf-8"))

    @pytest.mark.full
    def test_strings_that_the_analysis_knows(self, tmp_path):
        """With a text before or behind them it no longer does: there are errors, and other names."""
        text = PARTS["commands"] + PARTS["controls"]
        names = {"after.pb": lambda old: old + text, "before.pb": lambda old: text + old}
        paths = [tmp_path / name for name in names]
        for raw, kind in itertools.product((sample_trace(errors=("x",)), tpu()), KINDS):
            for path in paths:
                path.write_bytes(renamed(raw, kind, names[path.name]))
                check_terminal("".join(ran("analyze", "-vv", path)[1:]))
            check_terminal("".join(ran("compare", "-v", *paths)[1:]))
            assert ran("export", paths[1], "-o", tmp_path / "trace.json")[0] == 0, kind
            strict_json((tmp_path / "trace.json").read_text("ascii"))


def hostile_module(text):
    """An XLA module whose names, op types, op names and source are the text."""
    named = {"op_name": text, "op_type": text}
    main = [
        *parameters("f32[8,4]", "f32[4,8]"),
        op(text, "dot", "f32[8,8]", "p0", "p1", dot=dot([1], [0]), **named),
        op(f"{text} ", text, "f32[8,8]", text, **named),
    ]
    return replace(module(**{text: main}), name=text)


HLO_TEXT = """HloModule m
ENTRY e {
  p0 = f32[8,100]{1,0} parameter(0)
  p1 = f32[100,9]{1,0} parameter(1)
  ROOT d = f32[8,9]{1,0} dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type="NAME" op_name="NAME" source_file="NAME" source_line=3}
}
"""


class TestHlo:
    @pytest.fixture
    def trace(self, text, tmp_path):
        text = text.encode("utf-8", "replace").decode()  # protobuf has no halves of surrogate pairs
        modules = {f"{text}(1)": hostile_module(text), f"{text}(2)": hostile_module(text)}
        (tmp_path / "trace.pb").write_bytes(trace_of(modules, ran=[1, 2]))
        return tmp_path / "trace.pb"

    def test_terminal(self, trace):
        _, out, err = ran("analyze", "-v", trace)
        assert SEEN in out
        check_terminal(out + err)

    def test_text(self, text, tmp_path):
        quoted = re.sub(r'["\\\n\ud800\udfff]', "", text)
        (tmp_path / "step.txt").write_text(HLO_TEXT.replace("NAME", quoted), encoding="utf-8")
        for option in ("-v", "--json"):
            status, out, err = ran("padding", tmp_path / "step.txt", option)
            assert status in (0, 2), "a quoted text may not have the end of a line"
            check_terminal(out + err)

    def test_comparison(self, trace, tmp_path):
        (tmp_path / "other.pb").write_bytes(trace_of({"m(1)": hostile_module("m")}, ran=[1]))
        _, out, err = ran("compare", "-v", tmp_path / "other.pb", trace)
        assert SEEN in out
        check_terminal(out + err)

    def test_dot(self, trace, tmp_path):
        status, out, err = ran("export", trace, "-o", tmp_path / "hlo.dot")
        assert (status, out) == (0, "")
        assert SEEN in err, "the executables that the picture leaves out are named"
        check_terminal(err)
        check_dot((tmp_path / "hlo.dot").read_text("utf-8"))

    def test_another_name_of_a_module(self, trace, tmp_path):
        status, out, err = ran("export", trace, "-o", tmp_path / "hlo.dot", "--module", "absent")
        assert status == 2
        assert SEEN in err
        check_terminal(out + err)


def check_dot(text):
    """Names stand in quoted strings only: there `\\\\` and `\\"` are escapes."""
    assert SEEN in text
    assert not CONTROL.search(text)
    outside = re.sub(r'"(?:\\\\|\\"|[^"])*"', "", text)
    assert '"' not in outside
    for hostile in (SEEN, "evil", "octocat", "<", "|"):
        assert hostile not in outside
