"""The table of options, and ini values in every file format that pytest reads."""

import json
import sys

import pytest
from helpers.refusals import refusal

from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.errors import LimitError
from pytest_tfperf.plugin.option_values import PARSERS, plan_of, read_options
from pytest_tfperf.plugin.options import (
    COUNT,
    SECONDS,
    SHARE,
    STEPS,
    TABLE,
    Options,
    unknown_names,
)

TEXTS = {
    "tfperf_warmup": "3",
    "tfperf_steps": "7",
    "tfperf_trace_steps": "4",
    "tfperf_limits": "max_eager_ops = 0, max_step_time = 1 ns",
    "tfperf_max_regression": "7%",
    "tfperf_max_seconds": "30.5 s",
    "tfperf_try_seconds": "90 s",
    "tfperf_lock_timeout": "90",
    "tfperf_budget": "12",
    "tfperf_budget_total": "120",
    "tfperf_missing": "allow",
    "tfperf_min_checks": "2",
    "tfperf_trace_dir": "traces",
    "tfperf_baseline_dir": "kept",
    "tfperf_tpu": "v4",
    "tfperf_history": "file:///team/history",
    "tfperf_history_branch": "trunk",
    "tfperf_history_project": "models",
}
NUMBERS = {
    "tfperf_warmup": 3,
    "tfperf_steps": 7,
    "tfperf_trace_steps": 4,
    "tfperf_max_regression": 0.07,
    "tfperf_max_seconds": 30.5,
    "tfperf_try_seconds": 90.5,
    "tfperf_lock_timeout": 90,
    "tfperf_budget": 12,
    "tfperf_budget_total": 120,
    "tfperf_min_checks": 2,
}


def as_ini(path, values):
    lines = [f"{name} = {value}" for name, value in values.items()]
    (path / "pytest.ini").write_text("\n".join(["[pytest]", *lines]) + "\n")
    return []


def as_ini_options(path, values):
    return as_toml(path, "[tool.pytest.ini_options]", values)


def as_native_table(path, values):
    if limits := values.get("tfperf_limits"):
        values = {**values, "tfperf_limits": [limits]}
    return as_toml(path, "[tool.pytest]", values)


def as_toml(path, table, values):
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (path / "pyproject.toml").write_text("\n".join([table, *lines]) + "\n")
    return []


def as_override(path, values):
    return [argument for name, value in values.items() for argument in ("-o", f"{name}={value}")]


native = pytest.param(
    as_native_table,
    marks=pytest.mark.skipif(
        pytest.version_tuple < (9,), reason="pytest reads [tool.pytest] from version 9 on"
    ),
)
every_form = pytest.mark.parametrize("form", [as_ini, as_ini_options, native, as_override])


def test_every_option_is_a_field_with_its_default():
    assert {name: getattr(Options(), name) for name in TABLE}.items() >= {
        "baseline": False,
        "budget_s": 30.0,
        "missing": "fail",
        "reports": (),
        "trace_dir": None,
        "limits": None,
    }.items()
    for name, option in TABLE.items():
        assert option.flag or option.ini, name
        assert option.help, name
        assert option.kind in PARSERS, name


def test_options_are_frozen():
    options = Options(steps=3)
    with pytest.raises(AttributeError, match="options are frozen: steps"):
        options.steps = 4
    assert (options.steps, options.warmup) == (3, None)
    with pytest.raises(TypeError, match="no such option: step"):
        Options(step=3)


def test_flags_and_ini_values_are_named_alike():
    for option in TABLE.values():
        if option.flag:
            assert option.flag.startswith("--tfperf-")
            assert option.ini in ("", option.flag[2:].replace("-", "_"))
        else:
            assert option.ini.startswith("tfperf_")


def test_the_samples_have_every_ini_value():
    assert set(TEXTS) == {option.ini for option in TABLE.values() if option.ini}
    assert set(NUMBERS) == {
        option.ini
        for option in TABLE.values()
        if option.ini and option.kind in (COUNT, SECONDS, SHARE, STEPS)
    }


@every_form
@pytest.mark.parametrize("given", [TEXTS, TEXTS | NUMBERS], ids=["texts", "numbers"])
def test_ini_values_are_read_from_every_format(pytester, form, given):
    options = read_options(pytester.parseconfig(*form(pytester.path, given)))
    assert plan_of(options) == Plan(warmup=3, steps=7, trace_steps=4, max_seconds=30.5)
    assert options.marker_arguments == {
        "max_eager_ops": "0",
        "max_step_time": "1 ns",
        "max_regression": "7%",
        "tpu": "v4",
    }
    assert (options.missing, options.min_checks, options.budget_s) == ("allow", 2, 12.0)
    assert options.trace_dir == pytester.path / "traces"
    assert options.baseline_dir == pytester.path / "kept"


@every_form
def test_ini_values_that_are_empty_are_not_set(pytester, form):
    given = {name: "" for name in TEXTS if name != "tfperf_limits"}
    options = read_options(pytester.parseconfig(*form(pytester.path, given)))
    assert vars(options) == vars(Options(rootdir=pytester.path))


def test_flags_override_ini_values(pytester):
    as_ini(pytester.path, TEXTS)
    config = pytester.parseconfig(
        "--tfperf-budget=5", "--tfperf-missing=fail", "--tfperf-trace-dir=other"
    )
    options = read_options(config)
    assert (options.budget_s, options.missing) == (5.0, "fail")
    assert options.trace_dir == pytester.path / "other"


def test_flags_are_read(pytester):
    config = pytester.parseconfig(
        *("--tfperf-baseline", "--tfperf-strict", "--tfperf-only=timing"),
        *("--tfperf-report=a.html", "--tfperf-report=b.json", "--tfperf-against=HEAD"),
    )
    options = read_options(config)
    expected = Options(
        baseline=True,
        strict=True,
        only="timing",
        against="HEAD",
        reports=(pytester.path / "a.html", pytester.path / "b.json"),
        rootdir=pytester.path,
    )
    assert vars(options) == vars(expected)


def test_update_names_what_is_recorded(pytester):
    cases = [([], None), (["--tfperf-update"], "all"), (["--tfperf-update-new"], "new")]
    for flags, update in cases:
        assert read_options(pytester.parseconfig(*flags)).update == update, flags


BAD = [
    ("tfperf_steps", "many", "ini tfperf_steps: 'many' is not a whole number"),
    ("tfperf_steps", "0", "ini tfperf_steps: '0' is not a positive whole number"),
    ("tfperf_warmup", "2.5", "ini tfperf_warmup: '2.5' is not a whole number"),
    ("tfperf_max_seconds", "5%", "ini tfperf_max_seconds: '5%' is not a quantity"),
    ("tfperf_budget", "0", "ini tfperf_budget: '0' is not above zero"),
    *(
        ("tfperf_budget_total", value, f"ini tfperf_budget_total: '{value}' is not ")
        for value in ("0", "-5", "long", "inf", "nan", "1e999", "5%")
    ),
    ("tfperf_max_regression", "5 s", "ini tfperf_max_regression: '5 s' is not a quantity"),
    ("tfperf_max_regression", "5", "ini tfperf_max_regression: '5' is 500 %: write 0.05 or '5%'"),
    ("tfperf_min_checks", "-1", "ini tfperf_min_checks: '-1' is not a whole number"),
    ("tfperf_missing", "perhaps", "ini tfperf_missing: 'perhaps' is neither fail nor allow"),
    ("tfperf_tpu", "v99", "ini tfperf_tpu: 'v99' is no"),
    ("tfperf_limits", "max_input_bound", "ini tfperf_limits: 'max_input_bound' is not of the form"),
]


def test_an_empty_value_is_refused(pytester):
    """As of a variable of CI that is not set: the check would be off."""
    for option in TABLE.values():
        if option.metavar:
            config = pytester.parseconfig(f"{option.flag}=")
            assert option.is_given(config), option.flag
            said = refusal(LimitError, read_options, config)
            assert said == f"{option.flag}: the value is empty"


def test_one_empty_value_of_several_is_refused(pytester):
    config = pytester.parseconfig("--tfperf-report=run.json", "--tfperf-report=")
    with pytest.raises(LimitError, match=r"^--tfperf-report: the value is empty$"):
        read_options(config)


def test_a_tolerance_of_several_times_is_the_same_behind_the_marker(pytester):
    (pytester.path / "pytest.ini").write_text("[pytest]\ntfperf_max_regression = 250%\n")
    options = read_options(pytester.parseconfig())
    assert Wanted.read(options.marker_arguments).max_regression == options.max_regression == 2.5


UNKNOWN = [
    ("tfperf_limts", "did you mean tfperf_limits?"),
    ("tfperf_minchecks", "did you mean tfperf_min_checks?"),
    ("tfperf_zzz", "valid: tfperf_baseline_dir, tfperf_history, *"),
    ("tfperf_strict", "--tfperf-strict is only a flag, which addopts may set"),
]


@every_form
def test_an_unknown_ini_value_ends_the_run(pytester, form):
    for name, nearest in UNKNOWN if form is as_ini else UNKNOWN[:1]:
        result = pytester.runpytest_inprocess(*form(pytester.path, {name: "1"}))
        assert result.ret == pytest.ExitCode.USAGE_ERROR, name
        result.stderr.fnmatch_lines([f"ERROR: unknown ini value {name}; {nearest}"])


def test_unknown_ini_values_of_others_are_left_to_pytest(pytester):
    (pytester.path / "pytest.ini").write_text("[pytest]\ntfperfect = 1\n")
    assert pytester.runpytest_inprocess("--version").ret == 0


def test_another_pytest_has_no_list_of_unknown_ini_values():
    assert unknown_names(object()) == []


@every_form
def test_bad_ini_values_are_named(pytester, form):
    for name, value, message in BAD if form is as_ini else (BAD[0], BAD[-1]):
        config = pytester.parseconfig(*form(pytester.path, {name: value}))
        said = refusal(LimitError, read_options, config)
        assert said.startswith(message), (name, value, said)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest reads [tool.pytest] from 9 on")
def test_bad_native_values_are_usage_errors(pytester):
    cases = [
        ("tfperf_steps", 0, "*tfperf_steps: 0 is not a positive whole number*"),
        ("tfperf_min_checks", -1, "*tfperf_min_checks: -1 is not a whole number*"),
        ("tfperf_budget", -2.5, "*tfperf_budget: -2.5 is not above zero*"),
        ("tfperf_steps", True, "*tfperf_steps*True*"),
        ("tfperf_steps", ["7"], "*tfperf_steps*['7']*"),
        ("tfperf_tpu", 4, "*tfperf_tpu*4*"),
    ]
    for name, value, message in cases:
        as_native_table(pytester.path, {name: value})
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
        assert result.ret == pytest.ExitCode.USAGE_ERROR, (name, value)
        result.stderr.fnmatch_lines([message.replace("[", "[[]")])


def test_help_lists_every_flag_and_ini_value(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = pytester.runpytest_inprocess("--help").stdout.str()
    for option in TABLE.values():
        assert option.flag in text
        assert not option.ini or f"  {option.ini} (" in text
    squeezed = " ".join(text.split())
    assert "check only machine-independent metrics, or only timings" in squeezed
    budget = "seconds for each profile of a paired run, from the first turn on"
    assert squeezed.count(budget) == 2, "of the flag, and of the ini value"


@pytest.mark.parametrize(
    ("address", "package", "said"),
    [
        ("kept", "fsspec", "it needs fsspec: install it with pip install 'pytest-tfperf[history]'"),
        ("s3://team/tfperf", "duckdb", "it needs duckdb: *'pytest-tfperf[history]'"),
        ("gs://team/tfperf", "gcsfs", "gs:// needs a package of its own: *gcsfs*"),
        ("postgresql://host/db", "sqlalchemy", "it needs sqlalchemy: *'pytest-tfperf[postgresql]'"),
    ],
)
def test_a_history_without_its_packages_is_refused(pytester, monkeypatch, address, package, said):
    monkeypatch.setitem(sys.modules, package, None)
    pattern = said.replace("[", "[[]")
    for flags, source in (
        ([f"--tfperf-history={address}"], "--tfperf-history"),
        (["-o", f"tfperf_history={address}"], "ini tfperf_history"),
    ):
        result = pytester.runpytest_inprocess(*flags)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {source}: {pattern}"])
