"""Pages of traces: what stands at the top, a card for each trace, and two traces compared."""

import re

import pytest
from helpers.made_traces import pipeline
from helpers.traces import SYNTHETIC
from helpers.xspace import at, line, plane, space

from pytest_tfperf.cli.main import main
from pytest_tfperf.metrics.multi_host import analyse_job
from pytest_tfperf.report.html.charts import History
from pytest_tfperf.report.html.trace_pages import render_trends

HERO = re.compile(r'<p class="hero \w+">([^<]*)</p>')


def write(path, content):
    path.write_bytes(content)
    return path


def loop_of(step_ms):
    """Three steps of a Python loop."""
    marks = [at("train", n * step_ms, n * step_ms + step_ms, step_num=n, _r=1) for n in range(3)]
    works = [at("dense/MatMul:MatMul", n * step_ms, n * step_ms + step_ms / 2) for n in range(3)]
    return space(plane("/host:CPU", line("python", *marks), line("tf_Compute/1", *works)))


@pytest.fixture
def page(tmp_path, capsys):
    """Run a command with -o, and return the page."""

    def written(*arguments):
        target = tmp_path / "page.html"
        assert main([*map(str, arguments), "-o", str(target)]) == 0
        capsys.readouterr()
        return target.read_text("utf-8")

    return written


def test_a_page_of_a_trace_begins_with_its_bottleneck(page, tmp_path):
    html = page("analyze", write(tmp_path / "gpu.xplane.pb", pipeline()))
    assert "<h1>gpu.xplane.pb</h1>" in html
    [hero] = HERO.findall(html)
    assert hero.startswith("The GPU is idle ")
    assert html.count('class="waterfall"') + html.count("class=waterfall") == 1
    assert "GPU:0" in html
    assert "://" not in html.replace("http://www.w3.org", "")


def test_a_page_shows_what_the_terminal_does(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    trace = write(tmp_path / "gpu.xplane.pb", pipeline())
    assert main(["analyze", str(trace), "-o", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    facts = re.search(f"{trace}: (.*)", out)[1]
    verdict = re.search("Verdict: (.*)", out)[1]
    html = (tmp_path / "page.html").read_text("utf-8")
    assert HERO.findall(html) == [verdict]
    assert facts in html
    for figure in re.search("Key figures: (.*)", out)[1].split(" · "):
        assert figure in html


def test_several_traces_have_a_table_and_a_card_each(page, tmp_path):
    traces = [write(tmp_path / f"{ms}.xplane.pb", loop_of(ms)) for ms in (10, 30)]
    html = page("analyze", *traces)
    assert "<h1>2 traces</h1>" in html
    [hero] = HERO.findall(html)
    assert hero.startswith("30.xplane.pb: "), "the slowest one"
    assert len(re.findall("<details class=test", html)) == 2
    assert "the most urgent first" not in html


def test_two_traces_are_compared_by_their_median_step(page, tmp_path):
    traces = [write(tmp_path / f"{ms}.xplane.pb", loop_of(ms)) for ms in (10, 20)]
    html = page("compare", *traces)
    assert HERO.findall(html) == ["Traced steps are 2 times slower: 10 ms to 20 ms."]
    assert "before, mean 10 ms" in html
    assert "after, mean 20 ms" in html
    assert "+5 ms: host compute" in html
    assert len(re.findall("<details class=test", html)) == 2


def test_the_mean_is_named_where_it_goes_the_other_way(page, tmp_path):
    def steps_of(*lengths):
        starts = [sum(lengths[:n]) for n in range(len(lengths))]
        marks = [
            at("train", start, start + length, step_num=n, _r=1)
            for n, (start, length) in enumerate(zip(starts, lengths, strict=True))
        ]
        return space(plane("/host:CPU", line("python", *marks)))

    traces = [
        write(tmp_path / "a.xplane.pb", steps_of(10, 10, 10)),
        write(tmp_path / "b.xplane.pb", steps_of(8, 8, 20)),
    ]
    [hero] = HERO.findall(page("compare", *traces))
    assert hero == (
        "Traced steps are 20 % faster: 10 ms to 8 ms (median). "
        "The mean step changes from 10 ms to 12 ms."
    )


@pytest.mark.parametrize("command", ["analyze", "compare"])
def test_another_ending_is_refused_before_any_work(command, tmp_path, capsys):
    missing = [str(tmp_path / "no")] * (2 if command == "compare" else 1)
    assert main([command, *missing, "-o", "page.pdf"]) == 2
    assert capsys.readouterr().err == "tfperf: page.pdf: a page of traces ends in .html\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    trace = write(tmp_path / "a.xplane.pb", loop_of(10))
    (tmp_path / "file").write_text("")
    assert main(["analyze", str(trace), "-o", str(tmp_path / "file" / "page.html")]) == 2
    assert re.fullmatch(r"tfperf: .*page\.html: cannot be written: .*\n", capsys.readouterr().err)


def test_without_a_trace_that_can_be_read_no_page_is_written(tmp_path, capsys):
    broken = write(tmp_path / "a.xplane.pb", b"no trace")
    assert main(["analyze", str(broken), "-o", str(tmp_path / "page.html")]) == 2
    assert not (tmp_path / "page.html").exists()


def test_many_ops_stages_and_steps_give_a_page_of_bounded_size(page, tmp_path):
    path = "Iterator::Root"
    stages = []
    for n in range(50):
        path += f"::Stage{n}"
        stages.append(at(path, 1 + n / 100, 9 - n / 100, id=n + 2, parent_id=n + 1))
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(10_000)]
    ops = [at(f"layer{n}/MatMul:MatMul", n / 1000, (n + 1) / 1000) for n in range(5000)]
    host = plane(
        "/host:CPU",
        line("python", *marks),
        line("tf_data_private_threadpool/1", *stages),
        line("tf_Compute/1", *ops),
    )
    html = page("analyze", write(tmp_path / "large.xplane.pb", space(host)))
    assert len(html) < 250_000
    assert "9900 more are not drawn" in html


def test_a_trace_of_one_step_has_a_page(page, tmp_path):
    marks = line("python", at("train", 0, 10, step_num=0, _r=1))
    html = page("analyze", write(tmp_path / "one.xplane.pb", space(plane("/host:CPU", marks))))
    assert "1 step of 10 ms" in html


@pytest.mark.full
def test_every_stored_trace_has_a_page_of_bounded_size(page):
    n_pages = 0
    for path in sorted(SYNTHETIC.glob("*.pb")):
        analysed, _ = analyse_job([path])
        if analysed:
            assert len(page("analyze", path)) < 250_000, path
            n_pages += 1
    assert n_pages > 10


def test_a_history_of_few_runs_is_not_called_steady():
    def hero(*counts):
        trends = []
        for n in counts:
            values = [0.01] * n
            trends.append(("test_step", "", History(values=values)))
        return HERO.findall(render_trends("step_time", trends, ()))[0]

    assert hero(3) == "Changes of level in the step_time are not known."
    assert hero(20, 20) == "No change of level in the step_time of 2 profiles."
    said = "No change of level in the step_time of 1 profile; of 2 more it is not known."
    assert hero(20, 3, 4) == said
