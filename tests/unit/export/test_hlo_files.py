"""Modules in files, by the files' endings."""

import pytest
from helpers.hlo import module, op
from helpers.refusals import refusal

from pytest_tfperf.errors import ExportError
from pytest_tfperf.export.formats import export_hlo, export_traces, shows_hlo
from pytest_tfperf.hlo.dot import dot_of
from pytest_tfperf.hlo.printer import text_of

ONE, TWO = module(main=[op("é", "iota", "f32[8]")]), module(main=[op("b", "iota", "f32[4]")])


def test_text_has_all_modules_and_a_graph_the_first(tmp_path):
    export_hlo([ONE, TWO], tmp_path / "new" / "a.TXT")
    export_hlo([ONE, TWO], tmp_path / "a.dot")
    assert (tmp_path / "new" / "a.TXT").read_text("utf-8") == f"{text_of(ONE)}\n{text_of(TWO)}"
    assert (tmp_path / "a.dot").read_text("utf-8") == dot_of(ONE)


def test_a_picture_is_what_graphviz_makes_of_the_first(fake_graphviz, tmp_path):
    fake_graphviz("cat; printf END")
    export_hlo([ONE, TWO], tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text("utf-8") == f"{dot_of(ONE)}END"


def test_an_ending_that_is_none_of_them_is_refused(tmp_path):
    for name in ("a.json", "a", "a.txt.gz", "a.png"):
        assert not shows_hlo(tmp_path / name), name
        said = refusal(ExportError, export_hlo, [ONE], tmp_path / name)
        assert f"{name}: no format has this ending; take one of" in said, name
        assert ".txt, .dot, .svg" in said, name
    with pytest.raises(ExportError, match="no format has this ending"):
        export_traces([], tmp_path / "a.txt")


def test_no_module_and_no_place_are_errors(tmp_path):
    with pytest.raises(ExportError, match="there is no XLA module to write"):
        export_hlo([], tmp_path / "a.txt")
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match="cannot be written"):
        export_hlo([ONE], tmp_path / "file" / "a.txt")


def test_what_was_there_stays_where_graphviz_fails(fake_graphviz, tmp_path):
    fake_graphviz("cat; exit 1")
    out = tmp_path / "a.svg"
    out.write_text("before")
    with pytest.raises(ExportError, match="dot failed"):
        export_hlo([ONE], out)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
