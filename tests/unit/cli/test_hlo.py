"""`tfperf export` of HLO and `tfperf compare`, on traces made by hand."""

import json
from textwrap import dedent

import pytest
from helpers.hlo import module, op, parameters, trace_of

from pytest_tfperf.cli.main import main
from pytest_tfperf.hlo.printer import text_of

pytestmark = pytest.mark.usefixtures("wide_terminal")


def chain(*names, dtype="f32"):
    return module(
        main=[
            *parameters(f"{dtype}[8]"),
            *(
                op(name, "tanh", f"{dtype}[8]", "p0", op_type="Tanh", op_name=name)
                for name in names
            ),
        ]
    )


SMALL, LARGE, IDLE = chain("a"), chain("a", "b"), chain("c", "d", "e", "f")


@pytest.fixture
def trace(tmp_path):
    """Write a trace, and give its path as text."""

    def write(modules, ran, name="a"):
        path = tmp_path / f"{name}.xplane.pb"
        path.write_bytes(trace_of(modules, ran))
        return str(path)

    return write


@pytest.fixture
def two(trace):
    return trace({"small(1)": SMALL, "large(2)": LARGE, "idle(3)": IDLE}, [1, 2])


def test_text_is_of_what_ran_and_a_graph_of_the_largest(two, tmp_path, capsys):
    assert main(["export", two, "-o", str(tmp_path / "a.txt")]) == 0
    assert (tmp_path / "a.txt").read_text() == f"{text_of(LARGE)}\n{text_of(SMALL)}"
    assert capsys.readouterr() == ("", "")
    assert main(["export", two, "-o", str(tmp_path / "a.dot")]) == 0
    assert '"tanh b' in (tmp_path / "a.dot").read_text()
    assert capsys.readouterr() == (
        "",
        f"tfperf: {tmp_path / 'a.dot'} shows large(2); --module takes another: small(1)\n",
    )


def test_one_module_can_be_asked_for(two, tmp_path, capsys):
    assert main(["export", two, "-o", str(tmp_path / "a.txt"), "--module", "small"]) == 0
    assert (tmp_path / "a.txt").read_text() == text_of(SMALL)
    assert main(["export", two, "-o", str(tmp_path / "b.txt"), "--module", "smal"]) == 2
    assert (
        "no executable is named 'smal'; did you mean 'small'? valid: large, large(2), small, small(1)"
        in capsys.readouterr().err
    )
    assert main(["export", two, "-o", str(tmp_path / "b.json"), "--module", "small"]) == 2
    assert "--module needs an HLO format" in capsys.readouterr().err
    assert not list(tmp_path.glob("b.*"))


def test_where_no_step_ran_one_all_are_written_and_that_is_said(trace, tmp_path, capsys):
    assert main(["export", trace({"f(1)": SMALL}, []), "-o", str(tmp_path / "a.txt")]) == 0
    assert (tmp_path / "a.txt").read_text() == text_of(SMALL)
    assert "no step ran an executable" in capsys.readouterr().err


def test_a_trace_without_hlo_says_so(trace, tmp_path, capsys):
    assert main(["export", trace({}, []), "-o", str(tmp_path / "a.txt")]) == 2
    assert "no HLO in it: XLA had compiled nothing" in capsys.readouterr().err


def test_compare_shows_both_sides_and_what_differs(trace, capsys):
    before, after = (
        trace({"f(1)": LARGE}, [1]),
        trace({"f(7)": chain("a", dtype="bf16"), "idle(8)": IDLE}, [7, 7], "b"),
    )
    assert main(["compare", before, after]) == 0
    shown = capsys.readouterr().out
    steps = "1 step of 100 ms (train, from step_num)"
    assert shown.startswith(f"before: {before}: {steps}\nafter: {after}: {steps}\nnote: step_time ")
    metrics = {words[0]: words[1:] for words in map(str.split, shown.splitlines()) if words}
    assert metrics["xla_launches"] == ["1", "2", "×", "2"]
    assert metrics["xla_clusters"] == ["1", "1", "×", "1"]
    assert metrics["step_time"] == ["100", "ms", "100", "ms", "×", "1"]
    assert shown.endswith(
        dedent("""\
        instructions that differ, by op
        opcode  op type  op  before  after  difference
        ------  -------  --  ------  -----  ----------
        tanh    Tanh     a        1      2           1
        tanh    Tanh     b        1      0          -1

        fusions lost and gained, by the ops that they cover: none

        instructions whose shape or type changed
        opcode  op type  op  before  after
        ------  -------  --  ------  -------
        tanh    Tanh     a   f32[8]  bf16[8]
        """)
    )


def test_compare_prints_one_json_object(trace, capsys):
    before, after = trace({"f(1)": LARGE}, [1]), trace({"f(7)": SMALL}, [7, 7], "b")
    assert main(["compare", "--json", before, after]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["format"], content["before"], content["after"], content["notes"]) == (
        2,
        before,
        after,
        ["step_time and input_wait are of traced steps, which the profiler slows down"],
    )
    assert content["metrics"]["xla_launches"] == {
        "unit": "count",
        "before": 1.0,
        "after": 2.0,
        "ratio": 2.0,
    }
    assert "input_bound" not in content["metrics"]  # the traces show no input pipeline
    assert content["metrics"]["step_time"]["before"] == pytest.approx(0.1)
    assert content["hlo"]["ops"]["rows"] == [
        ["tanh", "Tanh", "a", 1.0, 2.0, 1.0],
        ["tanh", "Tanh", "b", 1.0, 0.0, -1.0],
    ]


@pytest.mark.parametrize(
    ("modules", "words"),
    [({}, "no HLO in it"), ({"idle(3)": IDLE}, "the steps after ran no XLA executable")],
    ids=["none", "idle"],
)
def test_without_hlo_the_metrics_are_compared_alone(trace, capsys, modules, words):
    assert main(["compare", trace({"f(1)": SMALL}, [1]), trace(modules, [], "b")]) == 0
    shown = capsys.readouterr().out
    assert "note: the HLO is not compared: " in shown
    assert words in shown
    assert "instructions" not in shown


def test_a_side_that_cannot_be_read_is_status_2(two, tmp_path, capsys):
    for sides in ([two, str(tmp_path / "none.pb")], [str(tmp_path / "none.pb"), two]):
        assert main(["compare", *sides]) == 2
        captured = capsys.readouterr()
        assert (captured.out, "none.pb" in captured.err) == ("", True)
