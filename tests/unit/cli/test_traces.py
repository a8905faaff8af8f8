"""`tfperf analyze` and `tfperf check` on a trace made by hand."""

import gzip
import io
import json
import re
import sys
import textwrap

import pytest
from helpers.builders import profile, record_of, run_of
from helpers.hlo import encoded, module, op, parameters
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.cli import progress
from pytest_tfperf.cli.main import main
from pytest_tfperf.report.run_file import write_run

pytestmark = pytest.mark.usefixtures("wide_terminal")


@pytest.fixture
def trace(tmp_path):
    steps = [at("train", n * 10, n * 10 + 8, step_num=n, _r=1) for n in range(3)]
    waits = [at("IteratorGetNextOp::DoCompute", n * 10 + 1, n * 10 + 5) for n in range(3)]
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", line("python", *steps), line("worker", *waits))))
    return str(path)


def test_analyze_says_where_the_time_of_a_step_went(trace, capsys):
    assert main(["analyze", trace]) == 0
    brief = capsys.readouterr().out
    assert brief.startswith(f"{trace}: 3 steps of 9.33 ms (train, from step_num)\n")
    assert "█ not explained 57.1 %  ▒ input 42.9 %\n" in brief
    assert "Verdict: The trace does not explain 57.1 % of the step.\n" in brief
    assert main(["analyze", "-v", trace]) == 0
    table = capsys.readouterr().out.partition("\n\n")[2].partition("\n\nmetric")[0]
    assert table == textwrap.dedent("""\
        part of a step     mean   share
        --------------  -------  ------
        not explained   5.33 ms  57.1 %
        input              4 ms  42.9 %
        step            9.33 ms   100 %""")


def test_analyze_prints_one_json_object(trace, capsys):
    assert main(["analyze", "--json", trace]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["format"] == 2
    profile = content["profiles"][0]
    assert [step["name"] for step in profile["steps"]] == ["train 0", "train 1", "train 2"]
    assert (profile["n_dropped"], profile["step_source"]) == (0, "step_num")
    assert set(profile["steps"][0]["parts_s"]) == {
        "compile",
        "output",
        "input",
        "kernel_launch",
        "host_compute",
        "collective",
        "device_to_device",
        "device_compute",
        "other",
    }
    assert set(profile["metrics"]["input_bound"]) == {"value", "unit", "source", "why", "detail"}
    time = profile["metrics"]["step_time"]
    assert (time["value"], time["source"]) == (pytest.approx(0.01), "trace")
    assert time["detail"]["traced"] == "traced steps, which the profiler slows down"
    assert profile["metrics"]["step_time_p90"]["value"] is None
    assert profile["metrics"]["step_time_p90"]["why"]


def test_analyze_has_the_time_of_the_traced_steps_as_check_has_it(trace, capsys):
    assert main(["analyze", "-v", trace]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^step_time +10 ms$", printed, re.MULTILINE)
    assert "step_time, traced: traced steps, which the profiler slows down\n" in printed
    assert "\nstep_time is unknown" not in printed
    assert main(["check", trace, "--max-step-time", "9 ms"]) == 1
    assert "step_time is 10 ms" in capsys.readouterr().out


def test_files_beside_a_trace_are_named_for_what_they_are(tmp_path, capsys):
    """The timeline for browsers, plain and compressed; an executable's HLO, alone and with its buffers."""
    timeline = b'{"displayTimeUnit": "ns", "traceEvents": []}'
    hlo = encoded(module([*parameters("f32[8]"), op("neg", "negate", "f32[8]", "p0")]))
    for name, content, said in [
        ("host.trace.json", timeline, "is JSON, such as the timeline"),
        ("host.trace.json.gz", gzip.compress(timeline), "is JSON, such as the timeline"),
        ("step.hlo_proto.pb", field(1, hlo), "is the HLO of an executable"),
        ("step.pb", hlo, "is the HLO of an executable"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        for command in (
            ["analyze", str(path)],
            ["check", str(path), "--max-retraces", "0"],
            ["padding", str(path)],
        ):
            assert main(command) == 2, command
            assert f"tfperf: {path} {said}" in capsys.readouterr().err, command


def test_executions_without_a_framework_are_said_to_have_no_steps(tmp_path, capsys):
    """As a program has them that calls PJRT itself."""
    path = tmp_path / "host.xplane.pb"
    calls = [at("CommonPjRtLoadedExecutable::Execute (main)", 9 * n, 9 * n + 1) for n in range(3)]
    ran = [at("dot", 9 * n + 1, 9 * n + 8, hlo_module="main", program_id=1) for n in range(3)]
    path.write_bytes(space(plane("/host:CPU", line("main", *calls), line("worker", *ran))))
    assert main(["analyze", str(path)]) == 2
    said = capsys.readouterr().err
    assert "XLA ran executables, and no call of TensorFlow or JAX" in said
    assert "tf_profile" not in said


def test_check_says_by_its_status_whether_limits_hold(trace, capsys):
    for limits, status in (
        (["--max-input-bound", "43%"], 0),
        (["--max-input-bound=42%"], 1),
        (["--max-input-bound", "43%", "--min-device-busy", "0.5"], 3),
        (["--max-input-bound", "42%", "--min-device-busy", "0.5"], 1),
        ([], 2),
    ):
        assert main(["check", trace, *limits]) == status, limits
        assert bool(capsys.readouterr().err) == (status == 2), limits


def test_a_failed_check_says_why(trace, capsys):
    main(["check", trace, "--max-input-bound", "5%"])
    assert (
        "FAIL: input_bound is 42.9 %, above the limit of 5 % (max_input_bound='5%')"
        in capsys.readouterr().out
    )


def test_a_limit_that_does_not_exist_or_has_no_value_is_refused(trace, capsys):
    for words, said in (
        (
            ["--max-input-bund", "5%"],
            "no option '--max-input-bund'; did you mean '--max-input-bound'?\n",
        ),
        (["--max-input", "5%"], "no option '--max-input'; "),
        (["--input-bound", "5%"], "no option '--input-bound'; "),
        (["--frobnicate", "5"], "no option '--frobnicate'; valid: "),
        (["--max-input-bound"], "expected one argument"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["check", trace, *words])
        assert said in capsys.readouterr().err, words


def test_help_lists_the_limits(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["check", "--help"])
    text = capsys.readouterr().out
    for flag in ("--max-input-bound", "--min-input-bound", "--max-retraces", "--retraces VALUE"):
        assert flag in text
    assert " --input-bound" not in text


def test_times_are_decided_by_the_traced_steps_and_say_so(trace, capsys):
    for limits, status, said in (
        (["--max-step-time", "9ms"], 1, "FAIL: step_time is 10 ms, above the limit of 9 ms"),
        (["--max-step-time", "20ms"], 0, "PASS (step_time of traced steps)"),
        (["--max-input-wait", "5 ms"], 0, "PASS (input_wait of traced steps)"),
        (["--max-input-wait", "4 ms"], 1, "FAIL: input_wait is 4.29 ms"),
    ):
        assert main(["check", trace, *limits]) == status, limits
        out = capsys.readouterr().out
        assert out.startswith(said)
        explained = "traced: the profiler ran in these steps and slows them down" in out
        assert explained is bool(status), limits
        assert main(["check", "--json", trace, *limits]) == status, limits
        [profile] = json.loads(capsys.readouterr().out)["profiles"]
        assert profile["metrics"]["step_time"]["source"] == "trace"
        assert profile["metrics"]["step_time"]["detail"]["traced"].startswith("traced steps")


def test_other_times_of_a_trace_stay_unknown(trace, capsys):
    assert main(["check", trace, "--max-step-time-p90", "1 s"]) == 3
    assert "step_time_p90 is unknown" in capsys.readouterr().out


def test_a_step_that_loops_inside_counts_each_of_its_steps(tmp_path, capsys):
    steps = [
        at("train", n * 10, n * 10 + 9, step_num=n, _r=1, tfperf=1, batches=5) for n in range(3)
    ]
    path = tmp_path / "loop.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", line("python", *steps))))
    assert main(["check", "-v", str(path), "--max-step-time", "2 ms"]) == 0
    assert "step_time is 2 ms, limit 2 ms" in capsys.readouterr().out


def test_a_run_file_is_named_as_one(tmp_path, capsys):
    path = tmp_path / "run.json"
    write_run(run_of(record_of(profile(retraces=0))), path)
    for arguments in (
        ["analyze", str(path)],
        ["check", str(path), "--max-retraces", "0"],
        ["padding", str(path)],
        ["export", str(path), "-o", str(tmp_path / "a.json")],
    ):
        assert main(arguments) == 2
        out, said = capsys.readouterr()
        assert not out
        assert f"{path} is JSON" in said
        assert "a run file to tfperf show" in said


def test_other_json_is_no_run_file(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    assert main(["analyze", str(path)]) == 2
    assert f"{path} is JSON, such as the timeline" in capsys.readouterr().err


def test_many_traces_show_how_many_are_done(trace, tmp_path, monkeypatch, capsys):
    other = tmp_path / "b.xplane.pb"
    other.write_bytes((tmp_path / "host.xplane.pb").read_bytes())
    assert main(["analyze", trace, str(other)]) == 0
    assert capsys.readouterr().err == ""  # it ends soon
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_LARGE", 0)
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    assert main(["analyze", trace, str(other)]) == 0
    said = terminal.getvalue()
    for n_done in range(3):
        assert f"tfperf: analysing: {n_done} of 2 traces, 0 MB" in said, n_done


def test_what_cannot_be_read_is_status_2_and_named(tmp_path, capsys):
    damaged = tmp_path / "damaged.xplane.pb"
    damaged.write_bytes(b"\x0a\xff")
    for path in (damaged, tmp_path / "none.pb"):
        assert main(["analyze", str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_what_can_be_read_is_shown_beside_what_cannot(trace, tmp_path, capsys):
    assert main(["analyze", str(tmp_path / "none.pb"), trace]) == 2
    captured = capsys.readouterr()
    assert f"{trace}: 3 steps of 9.33 ms" in captured.out
    assert "none.pb" in captured.err


def test_a_target_that_is_no_time_of_a_step_is_refused(trace):
    for target in ("0", "12", "0 ms", "-5ms", "soon"):
        with pytest.raises(SystemExit, match="2"):
            main(["analyze", f"--target-step-time={target}", trace])
        limits = [f"--target-step-time={target}", "--max-input-bound", "5%"]
        assert main(["check", trace, *limits]) == 2, target


def test_check_takes_the_target_too(trace, capsys):
    assert (
        main(["check", trace, "--target-step-time", "12ms", "--max-input-bound-at-target", "5%"])
        == 3
    )
    assert "no tf.data stage made an element" in capsys.readouterr().out


def test_what_was_dropped_is_said_with_its_reason(tmp_path, capsys):
    calls = [at("f", n * 10, n * 10 + 5, tf_function_call="notTraced-nonXla") for n in range(3)]
    other = at("g", 40, 41, tf_function_call="notTraced-nonXla")
    path = tmp_path / "calls.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", line("python", *calls, other))))
    page = tmp_path / "page.html"
    assert main(["analyze", str(path), "-o", str(page)]) == 0
    out = capsys.readouterr().out
    why = "left out: 1 other event from function (they are calls of other functions: g)"
    assert f"note: {why}" in out
    for shown in (out, page.read_text("utf-8")):
        assert why in shown
        assert ", 1 other event dropped\n" in shown.replace("<", "\n")


def test_a_limit_does_not_pass_on_calls_of_jax_that_return_before_their_work_ends(tmp_path, capsys):
    """Calls of 0.1 ms, each of 9 ms of work behind it, all of which the trace shows, or one less."""
    path = tmp_path / "host.xplane.pb"
    calls = [at("PjitFunction(f)", 0.2 * n, 0.2 * n + 0.1) for n in range(4)]
    for n_runs, status, said in [
        (4, 1, "step_time is 10 ms, above the limit of 5 ms"),
        (3, 3, "the trace has 4 calls of f and 3 executions"),
    ]:
        ran = [
            at("dot", 1 + 10 * n, 10 + 10 * n, hlo_module="jit_f", program_id=1, run_id=n)
            for n in range(n_runs)
        ]
        path.write_bytes(space(plane("/host:CPU", line("python", *calls), line("worker", *ran))))
        assert main(["check", str(path), "--max-step-time", "5 ms"]) == status, n_runs
        assert said in capsys.readouterr().out, n_runs
    assert main(["analyze", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}: JAX, steps of unknown time\n")
    assert main(["analyze", "--json", str(path)]) == 0
    analysed = json.loads(capsys.readouterr().out)["profiles"][0]
    known = {name for name, value in analysed["metrics"].items() if value["value"] is not None}
    assert (analysed["steps"], known & {"step_time", "input_bound", "host_overhead"}) == ([], set())
