"""Result values: their JSON, and metrics as attributes."""

import copy
import json
import pickle

import pytest
from helpers.builders import WORKLOAD, check, profile, record_of, value
from msgspec import convert

from pytest_tfperf.errors import TfperfError, UnknownMetric
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.report.run_file import read_run
from pytest_tfperf.results import Check, Profile, Verdict, without_praise
from pytest_tfperf.runs import Run
from pytest_tfperf.text import headline
from pytest_tfperf.values import (
    PARTS,
    Advice,
    Column,
    Source,
    Step,
    Table,
    Value,
    builtin,
    titled_columns,
)


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def full_profile():
    return Profile(
        name="train",
        metrics={
            "step_time": Value.of(
                "step_time", 0.0125, Source.TIMED, n_blocks=7, precision=None, settled=True
            ),
            "xla_clusters": Value.of(
                "xla_clusters", 1, Source.TRACE, low=1.0, high=2.0, executables=["a", "b"]
            ),
            "epoch_gap": Value.unknown("epoch_gap", "no epoch ended in the timed window"),
        },
        steps=(Step(name="train 3", period_s=0.0125, parts_s=dict.fromkeys(PARTS, 0.001)),),
        n_dropped=1,
        step_source="annotation",
        workload=WORKLOAD,
        notes=("cut short",),
        tables={
            "ops": Table.of(
                "ops of a step",
                [Column("op", "op"), Column("self_s", "self time", "s"), Column("eager", "eager")],
                [("MatMul", 0.001, False), ("Add", None, True)],
                1,
            )
        },
        advice=(
            Advice(
                what="use bfloat16", because="half_precision is 0", win_s=0.004, look="the op table"
            ),
        ),
        blocks_s=(0.0125, 0.013),
        files={"trace": "/kept/host.xplane.pb"},
        own={"rows": Metric("rows", "count", "lower", "program", "rows that are padding")},
    )


@pytest.mark.parametrize("source", Source)
def test_a_number_survives_json(source):
    before = Value.of("peak_memory", 1536, source, low=1000.0, where="train 3")
    assert convert(through_json(builtin(before)), Value) == before


def test_a_table_keeps_its_first_rows_and_says_how_many_it_left_out():
    table = Table.of("t", [Column("n", "n", "count")], [(n,) for n in range(7)], 3)
    assert (table.rows, table.n_more) == (((0,), (1,), (2,)), 4)
    assert Table.of("t", [Column("n", "n", "count")], [(1,)]).n_more == 0


def test_a_table_of_items_has_a_row_for_each_that_it_keeps():
    cells = [(Column("n", "n", "count"), lambda n: n), (Column("half", "half"), lambda n: n / 2)]
    table = Table.of_each("t", range(7), cells, 2)
    assert table == Table.of(
        "t", [column for column, _ in cells], [(n, n / 2) for n in range(7)], 2
    )


def test_the_records_of_a_table_have_its_cells_by_key():
    columns = [Column("op", "op"), Column("self_s", "self", "s")]
    assert Table.of("t", columns, [("MatMul", 0.5), ("Add", None)]).records() == [
        {"op": "MatMul", "self_s": 0.5},
        {"op": "Add", "self_s": None},
    ]


def test_titles_that_are_alike_get_different_keys():
    columns = titled_columns([("Self", "s"), ("self!", "s"), ("÷", ""), ("", "")])
    assert [column.key for column in columns] == ["self", "self_2", "column", "column_2"]


def test_an_unknown_value_survives_json_with_its_reason():
    before = Value.unknown("epoch_gap", "no epoch ended")
    assert builtin(before) == {
        "value": None,
        "unit": "s",
        "source": None,
        "why": "no epoch ended",
        "detail": {},
    }
    assert convert(through_json(builtin(before)), Value) == before


def test_a_profile_survives_json_without_its_result():
    before = full_profile()
    assert Profile.from_json(through_json(before.to_json())) == before
    with_result = Profile(name="", metrics={}, result=object())
    assert "result" not in with_result.to_json()
    assert Profile.from_json(through_json(with_result.to_json())).result is None


def test_a_profile_s_json_is_the_documented_object():
    data = full_profile().to_json()
    assert list(data) == [
        "name",
        "steps",
        "n_dropped",
        "step_source",
        "workload",
        "notes",
        "ended",
        "metrics",
        "tables",
        "advice",
        "blocks_s",
        "files",
        "own",
    ]
    assert list(data["steps"]) == [
        {"name": "train 3", "period_s": 0.0125, "parts_s": dict.fromkeys(PARTS, 0.001)}
    ]
    assert list(data["metrics"]["step_time"]) == ["value", "unit", "source", "why", "detail"]


def test_a_message_is_the_sentence_then_details_then_advice():
    found = check(
        "FAIL",
        sentence="slow",
        details=(("where", "Map"), ("", "+1 ms")),
        advice=(("try", "prefetch"),),
    )
    assert found.message == "slow\n  where: Map\n  +1 ms\n  try: prefetch"
    more = found.with_details(("over", "3 steps"))
    assert more.lines == ("where: Map", "+1 ms", "over: 3 steps", "try: prefetch")
    assert found.to_json()["message"] == found.message
    assert convert(through_json(more.to_json()), Check) == more


def test_a_text_of_several_lines_is_a_sentence_and_details():
    assert headline("it failed:\n  E  no\nend") == ("it failed:", (("", "E  no"), ("", "end")))
    assert headline("") == ("", ())


def test_a_run_survives_json():
    before = Run(
        created="2026-01-31T12:00:00+00:00",
        tests=(
            record_of(
                full_profile(),
                profile("eval"),
                checks=[check(verdict, name="train") for verdict in Verdict],
                max_regression=0.1,
                shared_cpu=True,
            ),
            record_of(key="test_empty"),
        ),
        commit="abc",
    )
    assert Run.from_json(through_json(before.to_json()), "run.json") == before
    assert before.to_json()["format"] == 2


def test_a_metric_is_an_attribute():
    assert profile(step_time=0.0125).step_time == 0.0125


@pytest.mark.parametrize(
    ("metric", "number", "expected"),
    [("xla_clusters", 2.0, int), ("xla_clusters", 2.5, float), ("flops", 2.0, float)],
)
def test_a_count_is_an_int_where_it_is_whole(metric, number, expected):
    read = getattr(profile(**{metric: number}), metric)
    assert (read, type(read)) == (number, expected)


def test_reading_an_unknown_metric_raises_the_reason():
    with pytest.raises(
        UnknownMetric, match=r"^epoch_gap is unknown: no epoch ended in the timed window$"
    ):
        _ = full_profile().epoch_gap


def test_an_unknown_name_is_an_attribute_error_with_the_nearest():
    with pytest.raises(
        AttributeError, match=r"a profile has no 'step_tim'; did you mean 'step_time'[?]"
    ):
        _ = profile().step_tim


def test_value_of_an_unknown_name_raises_with_the_nearest():
    with pytest.raises(
        UnknownMetric, match=r"no metric 'input_bond'; did you mean 'input_bound'[?]"
    ):
        profile().value("input_bond")


def test_value_of_an_unknown_metric_gives_the_reason():
    assert full_profile().value("epoch_gap").why == "no epoch ended in the timed window"


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_profile_can_be_copied(duplicate):
    before = full_profile()
    assert duplicate(before) == before
    assert duplicate(before).step_time == 0.0125


@pytest.mark.parametrize("name", ["metrics", "name", "_private", "__wrapped__", "__deepcopy__"])
def test_a_profile_that_is_not_filled_yet_has_no_attributes_and_does_not_recurse(name):
    with pytest.raises(AttributeError):
        getattr(Profile.__new__(Profile), name)


def test_a_profile_has_no_attributes_that_tools_ask_for():
    assert not any(
        hasattr(full_profile(), name) for name in ("__wrapped__", "__len__", "_repr_html_")
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_measurement_that_is_not_finite_is_unknown(number):
    measured = Value.of("step_time", number, Source.TIMED, n_blocks=7)
    assert (measured.number, measured.why) == (None, f"the measurement gave {number}")


def test_low_and_high_are_the_number_where_steps_do_not_differ():
    assert (value("xla_launches", 3).low(), value("xla_launches", 3).high()) == (3.0, 3.0)
    differing = value("xla_launches", 3, low=2, high=5)
    assert (differing.low(), differing.high()) == (2.0, 5.0)


@pytest.mark.parametrize(
    "data",
    [
        [],
        "text",
        5,
        None,
        {},
        {"tests": []},
        {"format": "1", "tests": []},
        {"format": 0, "tests": []},
    ],
    ids=str,
)
def test_other_json_is_refused(data):
    with pytest.raises(TfperfError, match=r"^run\.json: not a run file of pytest --tfperf-report$"):
        Run.from_json(data, "run.json")


def damage(*path, to):
    """A run file as JSON in which one thing is something else."""
    data = through_json(
        Run(created="now", tests=(record_of(full_profile(), checks=[check("PASS")]),)).to_json()
    )
    *parents, last = path
    part = data
    for key in parents:
        part = part[key]
    part[last] = to
    return data


@pytest.mark.parametrize(
    "data",
    [
        {"format": 2},
        {"format": 2, "created": "now", "tests": None},
        {"format": 2, "created": "now", "tests": ["text"]},
        {"format": 2, "created": "now", "tests": [{}]},
        {
            "format": 2,
            "created": "now",
            "tests": [
                dict.fromkeys(("nodeid", "file", "key"), "a")
                | {"outcome": "passed", "profiles": []}
            ],
        },
        damage("tests", 0, "profiles", to=[1]),
        damage("tests", 0, "profiles", 0, "metrics", to=[]),
        damage("tests", 0, "profiles", 0, "steps", to=[[]]),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", to=0.1),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "value", to="fast"),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "source", to="guess"),
        damage("tests", 0, "checks", 0, "verdict", to="FINE"),
        damage("tests", 0, "profiles", 0, "tables", "ops", "columns", 0, to="op"),
        damage("tests", 0, "profiles", 0, "tables", "ops", "columns", 0, "title", to=5),
        damage("tests", 0, "profiles", 0, "tables", "ops", "rows", 0, to=["MatMul"]),
        damage("tests", 0, "profiles", 0, "tables", "ops", "rows", 0, to=["MatMul", 1, True, 0]),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "value", to=None),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "source", to=None),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "why", to="unknown"),
        damage("tests", 0, "profiles", 0, "metrics", "step_time", "detail", to={"low": "?"}),
        damage("tests", 0, "profiles", 0, "workload", to={"inputs": [8]}),
        damage("tests", 0, "checks", 0, "detail", to={"turns": [[1]]}),
        damage("tests", 0, "environment", to={"setting": {"keras": 3}}),
    ],
)
def test_a_damaged_run_file_is_named_and_refused(tmp_path, data):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    with pytest.raises(TfperfError) as refusal:
        read_run(path)
    assert str(refusal.value).startswith(f"{path}: damaged run file: ")


@pytest.mark.parametrize(
    "path",
    [
        ("tests", 0),
        ("tests", 0, "checks", 0),
        ("tests", 0, "profiles", 0),
        ("tests", 0, "profiles", 0, "steps", 0),
        ("tests", 0, "profiles", 0, "advice", 0),
        ("tests", 0, "profiles", 0, "own", "rows"),
    ],
)
def test_fields_of_a_later_version_are_left_out(path):
    expected = Run.from_json(damage("tests", 0, "line", to=1), "run.json")
    data = damage("tests", 0, "line", to=1)
    part = data
    for key in path:
        part = part[key]
    part["unheard_of"] = 1
    assert Run.from_json(data, "run.json") == expected


def test_a_profile_that_got_worse_by_one_metric_is_improved_by_none():
    better = check("IMPROVED", "graph_ops", "graph_ops fell from 9 to 5", kind="baseline")
    faster = check("IMPROVED", "step_time", "step_time is 20 % faster", kind="against")
    share = {"kind": "compare", "detail": {"gates": False, "before": 1.0, "after": 0.5}}
    said = ": changed, and not improved, since "
    cases = [
        (check("REGRESSION", "eager_ops", kind="baseline"), "eager_ops got worse"),
        (check("REGRESSION", "step_time", kind="against"), "step_time got worse"),
        (check("UNKNOWN", "xla_clusters", kind="compare"), "xla_clusters is unknown"),
        (check("PASS", "half_precision", **share), "half_precision fell"),
        (check("PASS", "xla_coverage", **share), "xla_coverage fell"),
        # none of these got worse
        (check("FAIL", "eager_ops"), None),
        (check("UNKNOWN", "eager_ops"), None),
        (check("INCONCLUSIVE", "step_time", kind="against"), None),
        (check("NEW", "fusions", kind="baseline"), None),
        (check("REGRESSION", "eager_ops", kind="baseline", name="another"), None),
        (check("PASS", "graph_reduction", **share), None),
        (check("PASS", "half_precision", kind="compare", detail={"before": 0.5, "after": 1}), None),
    ]
    for other, why in cases:
        for given in ([better, faster, other], [other, better, faster]):
            found = [one for one in without_praise(given) if one is not other]
            assert [one.verdict for one in found] == [Verdict.PASS if why else Verdict.IMPROVED] * 2
            assert [one.sentence.partition(said)[2] for one in found] == [why or ""] * 2
            assert all(one.is_shown_change == (why is not None) for one in found), other


def test_what_is_changed_and_not_improved_has_no_command_that_records_it():
    better = check("IMPROVED", kind="baseline", advice=(("try", "pytest --tfperf-update"),))
    worse = check("REGRESSION", "eager_ops", kind="baseline")
    assert without_praise([better, worse])[0].advice == ()
