"""`tfperf analyze --into` and `tfperf check --rules`: what they print, and their status."""

import gzip
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest
from helpers.fleets import different_traces, stored, waiting_trace, write_traces

from pytest_tfperf.cli.main import main
from pytest_tfperf.stores.traces import analyze_traces


@pytest.fixture(autouse=True)
def long_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")


@pytest.fixture(autouse=True)
def in_threads(monkeypatch):
    """Let threads analyse what processes would: `tests/processes/stores` has those."""
    monkeypatch.setattr("pytest_tfperf.stores.workers.LocalProcesses", ThreadPoolExecutor)


def analysed(store, *urls):
    with ThreadPoolExecutor(1) as pool:
        analyze_traces([str(url) for url in urls], str(store), executor=pool)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Traces that wait 10, 21 and 41 % of a step, one whose rules allow that, and their store."""
    folder = tmp_path_factory.mktemp("fleet")
    waits = {"a": 1, "train/b": 2, "train/c": 4, "eval/d": 4}
    write_traces(folder / "traces", {name: waiting_trace(n) for name, n in waits.items()})
    analysed(folder / "store", folder / "traces")
    return folder


@pytest.fixture
def traces(prepared):
    return prepared / "traces"


@pytest.fixture
def store(prepared, tmp_path):
    """A copy of the store, which a test may change."""
    shutil.copytree(prepared / "store", tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def rules(tmp_path):
    def write(text):
        path = tmp_path / "rules.toml"
        path.write_text(text)
        return ["--rules", str(path)]

    return write


RULES = 'max_input_bound = "15%"\n[[rules]]\nmatch = "*/eval/*"\nmax_input_bound = 1\n'


def rewrite(path, columns):
    """Replace the rows of a table by others."""
    other = path.with_suffix(".other")
    duckdb.sql(f"COPY (SELECT {columns} FROM '{path}') TO '{other}' (FORMAT parquet)")
    other.replace(path)


def test_the_worst_traces_come_first(traces, store, rules, capsys):
    assert main(["check", str(store), *rules(RULES)]) == 1
    assert capsys.readouterr().out == (
        f"{traces}/train/c.xplane.pb: FAIL: input_bound is 41.4 %, above the limit of 15 % "
        "(max_input_bound='15%'); no tf.data stage ran: the elements come from Python code\n"
        f"{traces}/train/b.xplane.pb: FAIL: input_bound is 20.7 %, above the limit of 15 % "
        "(max_input_bound='15%'); no tf.data stage ran: the elements come from Python code\n"
        "4 traces: 2 failed, 2 passed\n"
    )
    assert main(["check", str(store), *rules(RULES), "--most", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "and 1 more trace",
        "4 traces: 2 failed, 2 passed",
    ]
    assert main(["check", str(store), *rules(RULES), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["traces"]
    assert [trace["verdict"] for trace in found] == ["FAIL", "FAIL", "PASS", "PASS"]
    assert found[0]["checks"][0]["detail"]["bound"] == 0.15


def test_all_good_is_status_0(store, rules, capsys):
    assert main(["check", str(store), *rules('max_input_bound = "50%"')]) == 0
    assert capsys.readouterr().out == "4 traces: 4 passed\n"


def test_a_glob_is_checked_without_a_store(traces, rules, capsys):
    glob = f"{traces}/train/*.xplane.pb"
    assert main(["check", glob, *rules('max_input_bound = "30%"')]) == 1
    assert capsys.readouterr().out.endswith("2 traces: 1 failed, 1 passed\n")


def test_unknown_is_no_pass(store, rules, capsys):
    for limit in ("min_device_busy = 0.5", "max_kernel_launches = 1"):
        assert main(["check", str(store), *rules(limit)]) == 3, limit
        assert capsys.readouterr().out.endswith("4 traces: 4 unknown\n"), limit


def test_a_damaged_trace_is_no_pass(store, rules, capsys, tmp_path):
    write_traces(tmp_path / "more", {"bad": b"nonsense"})
    analysed(store, tmp_path / "more")
    assert main(["check", str(store), *rules('max_input_bound = "50%"')]) == 3
    shown = capsys.readouterr().out
    assert f"{tmp_path}/more/bad.xplane.pb: UNKNOWN: is not an XSpace trace" in shown
    assert shown.endswith("5 traces: 1 unknown, 4 passed\n")


def test_the_newest_content_of_a_trace_counts(rules, capsys, tmp_path):
    store = tmp_path / "store"
    for wait in (1, 7):
        write_traces(tmp_path / "traces", {"a": waiting_trace(wait)})
        analysed(store, tmp_path / "traces")
    assert main(["check", str(store), *rules('max_input_bound = "50%"')]) == 1
    assert capsys.readouterr().out.endswith("\n1 trace: 1 failed\n")


def test_a_trace_without_a_limit_is_counted_as_such(store, rules, capsys):
    text = '[[rules]]\nmatch = "*/evil/*"\nmax_input_bound = 1\n'
    assert main(["check", str(store), *rules(text)]) == 3  # nothing was decided
    shown = capsys.readouterr()
    assert shown.out == "4 traces: 4 without a limit\n"
    assert "match = '*/evil/*' of" in shown.err
    assert "matches no trace" in shown.err


def test_skew_between_hosts_has_limits_too(tmp_path, rules, capsys):
    contents = {f"host_{n}": waiting_trace(1, work=work) for n, work in enumerate((1, 1, 2))}
    write_traces(tmp_path / "traces/plugins/profile/run", contents)
    analysed(tmp_path / "store", tmp_path / "traces")
    assert main(["check", str(tmp_path / "store"), *rules("max_step_skew = 0.2")]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert "step_skew is 50 %, above the limit of 20 %" in line
    assert line.endswith("the slowest host is host_2")


def test_damaged_objects_of_a_store_are_named_and_no_pass(store, rules, capsys):
    limits = rules('max_input_bound = "50%"')
    damaged = store / "metrics-1" / stored(store, "metrics")[0]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert main(["check", str(store), *limits]) == 3
    shown = capsys.readouterr()
    assert f"{damaged} is left out: " in shown.err
    assert "UNKNOWN: its result cannot be read" in shown.out
    (store / "traces-1" / f"{'0' * 32}-{'1' * 64}.parquet").write_bytes(b"half")
    assert main(["check", str(store), *limits]) == 3
    assert f"{'1' * 64}.parquet is left out: " in capsys.readouterr().err


def test_rows_that_others_wrote_pass_nothing(prepared, tmp_path, rules, capsys):
    for n, (changed, why) in enumerate(
        (
            ("* REPLACE ('[1, 2' AS detail)", "left out"),
            ("""* REPLACE ('{"low": "x"}' AS detail)""", "left out"),
            ("* REPLACE ('NaN'::DOUBLE AS value)", "left out"),
            ("* REPLACE ('strange' AS source)", "left out"),
            ("* REPLACE ('many'::VARCHAR AS value)", "left out"),
            ("* EXCLUDE (value)", "left out"),
            ("* REPLACE (NULL AS value, NULL AS why)", "the store does not tell why"),
            ("* REPLACE ('other' AS sha256)", "its result cannot be read"),
            ("1 AS x", "left out"),
        )
    ):
        store = shutil.copytree(prepared / "store", tmp_path / str(n))
        for path in (store / "metrics-1").iterdir():
            rewrite(path, changed)
        assert main(["check", str(store), *rules('max_input_bound = "50%"')]) == 3, changed
        shown = capsys.readouterr()
        assert why in shown.err + shown.out, changed
        assert shown.out.endswith("4 traces: 4 unknown\n"), changed


def test_text_of_a_store_controls_no_terminal(store, rules, capsys):
    text = "* REPLACE (concat(chr(27), '[31m', trace, chr(10), '::error::x') AS trace)"
    for path in (store / "traces-1").iterdir():
        rewrite(path, text)
    assert main(["check", str(store), *rules('max_input_bound = "1%"')]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\n::error" not in shown


def test_a_store_of_a_newer_format_is_refused(traces, store, rules, capsys):
    (store / "metrics-2").mkdir()
    assert main(["check", str(store), *rules(RULES)]) == 2
    assert main(["analyze", str(traces), "--into", str(store)]) == 2
    sentence = "has rows of format 2, and this version reads up to 1; upgrade pytest-tfperf"
    assert capsys.readouterr().err.count(sentence) == 2


REFUSED = [
    (["analyze", "{traces}", "--executor", "2"], "need --into STORE"),
    (["analyze", "{traces}", "--into", "s", "-o", "p.html"], "goes with neither"),
    (["analyze", "{traces}", "--into", "s", "--shard", "3/2"], "is not of the form 3/64"),
    (["analyze", "{traces}/none", "--into", "s"], "cannot be listed: No such file"),
    (["analyze", "{traces}", "--into", "none://x"], "store none://x: "),
    (["analyze", "{traces}", "--into", "/proc/none", "--executor", "1"], "cannot be written"),
    (["analyze", "memory://x/a.xplane.pb"], "--into STORE analyses traces there"),
    (["check", "memory://x", "--max-retraces", "0"], "--into STORE analyses traces there"),
    (["check", "{traces}", "--rules", "none.toml"], "none.toml: cannot be read"),
    (["check", "{traces}", "--rules", "x", "--max-retraces", "0"], "stand in that file"),
]


def test_what_cannot_be_done_is_said_in_a_sentence(traces, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words, why in REFUSED:
        assert main([word.format(traces=traces) for word in words]) == 2, words
        shown = capsys.readouterr()
        assert why in shown.err
        assert shown.err.startswith("tfperf: "), words
        assert shown.err.count("\n") == 1, words
        assert shown.out == "", words


def test_a_folder_that_is_no_store(traces, rules, capsys):
    assert main(["check", str(traces), *rules(RULES)]) == 2
    assert "has no result of a trace" in capsys.readouterr().err


def test_the_summary_names_runs_and_errors(tmp_path, capsys):
    run = tmp_path / "plugins/profile/run"
    write_traces(run, {f"host_{n}": waiting_trace(1, work=n) for n in (1, 2)} | {"x": b"nonsense"})
    store = tmp_path / "store"
    command = ["analyze", f"{tmp_path}/plugins", "--into", str(store)]
    assert main(command) == 2
    shown = capsys.readouterr()
    assert shown.out == (
        "3 traces: 2 analysed, 1 cannot be read\n"
        f"{run}: 2 hosts and 1 that cannot be read, step_skew 20 % over 3 steps, slowest host_2\n"
    )
    assert shown.err.startswith(f"tfperf: {run}/x.xplane.pb: is not an XSpace trace")
    assert main(command) == 2
    again = capsys.readouterr().out
    assert again.startswith("3 traces: 0 analysed, 2 stored before, 1 cannot be read\n")
    assert main([*command, "--json"]) == 2
    content = json.loads(capsys.readouterr().out)
    assert (content["n_traces"], content["n_analysed"]) == (3, 0)
    assert content["runs"][0]["slowest"] == "host_2"


def test_only_a_part_of_many_errors_is_named(tmp_path, capsys):
    bad = {name: f"nonsense {name}".encode() for name in different_traces(12)}
    glob = write_traces(tmp_path / "traces", bad)
    assert main(["analyze", glob, "--into", str(tmp_path / "store")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "tfperf: and 2 more"


@pytest.mark.parametrize("end", [5, 60, -1])
def test_compressed_traces_are_those_that_they_hold(tmp_path, rules, capsys, end):
    """One that was cut in its header, its content or its checksum has one row, and passes nothing."""
    traces, store = tmp_path / "traces", tmp_path / "store"
    write_traces(traces, {"plain": waiting_trace(1)})
    whole = gzip.compress(waiting_trace(1, n_steps=4))
    contents = {"good": gzip.compress(waiting_trace(1)), "slow": gzip.compress(waiting_trace(4))}
    for name, content in (contents | {"cut": whole[:end]}).items():
        (traces / f"{name}.xplane.pb.gz").write_bytes(content)
    analyze = ["analyze", str(traces), "--into", str(store)]
    check = ["check", str(store), *rules('max_input_bound = "15%"')]
    cut = traces / "cut.xplane.pb.gz"
    why = (
        f"the compressed file ends after {len(whole[:end])} bytes, before its content does; copy it"
        " again"
    )
    assert main(analyze) == 2
    shown = capsys.readouterr()
    assert shown.out == "4 traces: 3 analysed, 1 cannot be read\n"
    assert shown.err == f"tfperf: {cut}: {why}\n"
    query = f"SELECT trace, why FROM '{store}/traces-1/*.parquet' WHERE why != ''"
    errors = duckdb.sql(query).fetchall()
    assert errors == [(str(cut), why)]
    assert len(stored(store, "metrics")) == 3
    assert main(check) == 1
    failed, unknown, counts = capsys.readouterr().out.splitlines()
    assert failed.startswith(f"{traces}/slow.xplane.pb.gz: FAIL: input_bound is 41.4 %, ")
    assert unknown == f"{cut}: UNKNOWN: {why}"
    assert counts == "4 traces: 1 failed, 1 unknown, 2 passed"
    cut.write_bytes(whole)
    assert main(analyze) == 0
    assert capsys.readouterr().out == "4 traces: 1 analysed, 3 stored before\n"
    assert main(check) == 1
    assert capsys.readouterr().out.endswith("\n4 traces: 1 failed, 3 passed\n")
