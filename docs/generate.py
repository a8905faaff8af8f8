"""Write the generated pages of docs/reference from the registries."""

import ast
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.gates import ANY, MOVED, NEVER, RISE, WORSE, gate_of
from pytest_tfperf.metric_evidence import ANYWHERE, EVIDENCE, KNOWN_ON
from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.plugin.options import COUNT, LIMITS, SECONDS, SHARE, STEPS, TABLE, Option
from pytest_tfperf.report.remedies import COLUMNS, RemedyRecord
from pytest_tfperf.report.run_details import Comparison, Detail, Environment
from pytest_tfperf.results import FORMAT, Check, Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.tpu.op_guide import METRIC, ON, RULES, Finding, Rule, value
from pytest_tfperf.values import REMEDIES, Advice, Column, Step, Table, Value, Workload

HEAD = """# Metrics

Each metric is an attribute of a profile (`profile.step_time`), and has the limits `max_<metric>=` and `min_<metric>=` of the marker; a count also
`<metric>=`. `tfperf metrics NAME` explains one on the terminal.

- *Scope*: where a value holds. *program*: on every machine. *platform*: for a device kind and a version of the framework. *machine*: for one class of
  machines (times).
- *TensorFlow*, *JAX*, *PyTorch*: the devices on which a step in pytest makes the metric known, also under Keras. *yes* is every device, a CPU too.
  *tf.data*: if a `tf.data.Dataset` feeds the step. *latency*: with `latency=True`. –: the metric is UNKNOWN, and a limit on it fails. Keras on
  PyTorch is timed and not traced.
- °: experimental on GPUs. These values are held to stored traces, of an [H200](../evidence/index.md#a-gpu) too.
- `padding_overhead`, `mxu_padding_overhead` and `op_guide_findings` are about TPUs. They are computed, recorded and compared only if `tpu=` or
  `tfperf_tpu` is set, a limit asks for them, or the step ran on a TPU.

[How the numbers are computed](../explanation/analysis.md) has their sources. This page is written by `docs/generate.py` from the registry.

| metric | unit | better | scope | TensorFlow | JAX | PyTorch | meaning |
|---|---|---|---|---|---|---|---|
"""


EVIDENCE_HEAD = """
## Evidence

A zero needs evidence. A metric is UNKNOWN, with the reason, unless its evidence is there. A limit on an UNKNOWN metric fails.

| metrics | known from |
|---|---|
"""


GATES_HEAD = """
## Which changes fail a test

A comparison with a baseline, a git ref or another run file fails a test if one of these metrics changed so. A change of another metric is shown ("changed
from 48.7 % to 25.2 %, which does not gate"), and is neither REGRESSION nor IMPROVED: a faster program can make it too, or runs of the same code differ by it.

A limit (`min_xla_coverage="90%"`) gates any metric. `max_python_calls_regression="2%"` on the marker gates a smaller rise of `python_calls`.

| metric | what gates | why |
|---|---|---|
"""


NEVER_HEAD = """
These changes gate nothing:

| metrics | why |
|---|---|
"""


OP_GUIDE_HEAD = """# The TPU op guide as findings

`op_guide_findings` counts where a step breaks the rules of the [Cloud TPU performance
guide](https://cloud.google.com/tpu/docs/performance-guide); no TPU is needed. It is computed if `tpu=` or `tfperf_tpu` is set, a limit,
`findings=` or `ignore_findings=` asks for it, or the step ran on a TPU. The rules look at the programs of the step as XLA gets
them, before it optimises them. They include gradients, loops, branches and called functions, and leave out dead code.

```python
@pytest.mark.tfperf(
    max_op_guide_findings=0, findings=["PADDED_RESHAPE"], ignore_findings=["SPACE_BATCH"]
)
def test_train_step(tf_profile):
    tf_profile(train_step, dataset)
```

<!-- generated -->
```
{message}
```

- *Level*: findings that are **on** count; those of level **info** are in `profile.tables["op_guide"]` and never count. Those
  that are **off** do neither. `findings=` switches further codes on (`"all"`: every one). `ignore_findings=` suppresses codes, and the
  table shows them as `suppressed`. A note names suppressed codes that were never found.
- Each op that breaks a rule is a finding. A function called twice in the step's functions counts twice. A function that Python calls
  counts once. Of the replicas of tf.distribute the first counts.
- In TensorFlow, these are the programs of `flops`: every tf.function is lowered, with `jit_compile` or without. NO_TPU_KERNEL comes from the
  step's graph (`xla_coverage`). Of a step with such an op that XLA cannot lower, the number is a lower bound. Other steps that it cannot lower are
  UNKNOWN, and so are those that call no tf.function, and those whose lowering takes longer than `tfperf_max_seconds` (0.4 to 3 ms an op).
- In JAX, a dot is an einsum. CATEGORICAL, NO_TPU_KERNEL, NORMAL_SAMPLING, SPACE_BATCH and UNFUSED_BN find nothing, since JAX makes simpler ops
  of these.
- Sizes are compared with tiles of 8 x 128 elements in row-major order. Data of convolutions have the order of [Padding](../explanation/padding.md).
  XLA may choose another order, or remove a transpose or a reshape. The cost of a finding was not measured on a TPU.

This page is written by `docs/generate.py` from the registry (`pytest_tfperf/tpu/op_guide.py`).
"""


OPTIONS_HEAD = """# Options and ini values

A flag goes before the ini value of the same name. Ini values belong in `pytest.ini`, `tox.ini`, `setup.cfg` or
`pyproject.toml`, or on the command line after `-o`. Numbers may be numbers or strings in either TOML table:

```toml
[tool.pytest]                # read by pytest 9 and later; earlier versions: [tool.pytest.ini_options]
tfperf_steps = 50
tfperf_max_seconds = 30.5    # or "30.5 s"
tfperf_max_regression = "5%"
tfperf_limits = ["max_input_bound = 5%", "max_retraces = 0"]
```

- Most runs are one of `pytest --tfperf-update`, `pytest --tfperf-baseline --tfperf-only structural` and `pytest --tfperf-against main`. [Run in
  CI](../how_to/ci.md) says which to take.
- Paths on the command line are relative to the working directory, paths in ini values to the rootdir.
- Write a path outside of the project with an equals sign: `--tfperf-report=/tmp/perf.html`. Behind a blank, pytest takes a path that exists for one of
  tests, and looks for the project's ini file there. Such a run ends with exit status 4.
- A name or value that cannot be understood ends the run with exit status 4, too. The message names the option.
- `--tfperf-only structural` checks metrics of [scope](metrics.md) program and platform. `timing` checks those of scope machine: times, rates, shares
  of a step, `memory_growth`.

`--tfperf-history` needs packages besides, in the environment that runs pytest, and in that of `tfperf history`:

| history in | install |
|---|---|
| a folder | `pip install "pytest-tfperf[history]"` |
| `s3://`, `gs://`, `az://` | the same, and `s3fs`, `gcsfs` or `adlfs` |
| `postgresql://` | `pip install "pytest-tfperf[postgresql]"` |

`tfperf analyze --into` needs `[history]` too, or `[dask]` with `--executor dask://…`; `tfperf capture` without TensorFlow needs `[capture]`, and `tfperf
completion` `[completion]`. This page is written by `docs/generate.py` from `pytest_tfperf/plugin/options.py`.

"""


def row(metric: Metric) -> str:
    """One line of the table."""
    mark = "" if EVIDENCE[metric.name].devices == ANYWHERE else "°"
    known = " | ".join(devices[metric.name] for devices in KNOWN_ON.values())
    return f"| `{metric.name}`{mark} | {metric.shown_unit} | {metric.better or '–'} | {metric.scope} | {known} | {metric.meaning} |\n"


CHANGES = {
    ANY: "any change",
    WORSE: "a change for the worse",
    RISE: "a rise",
    MOVED: "a fall where ops that XLA compiled now run outside it",
}


def gate_row(metric: Metric) -> str:
    """One line of the table of gates; empty for a metric that never gates."""
    gate = gate_of(metric)
    if gate.change == NEVER:
        return ""
    unless = f", unless `{gate.unless}` changed too" if gate.unless else ""
    beyond = f" of more than {bounds}" if (bounds := gate.bounds("and")) else ""
    return f"| `{metric.name}` | {CHANGES[gate.change]}{beyond}{unless} | {gate.why} |\n"


def rows_by_text(texts: Iterable[tuple[str, str]]) -> str:
    """Lines of a table, one for each text, with the metrics that have it."""
    names_of: dict[str, list[str]] = {}
    for name, text in texts:
        names_of.setdefault(text, []).append(f"`{name}`")
    return "".join(f"| {', '.join(names)} | {text} |\n" for text, names in names_of.items())


def page() -> str:
    """Return the whole page."""
    rows = METRICS.values()
    evidence = rows_by_text((name, EVIDENCE[name].known_from) for name in METRICS)
    never = rows_by_text(
        (one.name, gate.why) for one in rows if (gate := gate_of(one)).change == NEVER
    )
    head = HEAD + "".join(map(row, rows)) + EVIDENCE_HEAD + evidence
    return head + GATES_HEAD + "".join(map(gate_row, rows)) + NEVER_HEAD + never


def rule(row: Rule) -> str:
    """Return the section of a rule."""
    level = f"{row.level}{'; on in a loop within the step' if row.in_loop else ''}"
    parts = (
        ("Detects", row.detects),
        ("Why", row.why),
        ("Rewrite", row.rewrite),
        ("Example", f"`{row.example}`"),
    )
    return (
        f"\n## {row.code}\n\n*Level*: {level}\n\n"
        + "\n\n".join(f"*{title}*: {text}" for title, text in parts)
        + "\n"
    )


def finding_message() -> str:
    """Return the message of a test whose step has a transpose too many."""
    broken = RULES["TRANSPOSE"]
    finding = Finding(
        code=broken.code,
        level=ON,
        op="transpose",
        op_type="Transpose",
        line="model.py:31",
        what="f32[8,32,64] by (0,2,1)",
        why=broken.why,
        rewrite=broken.rewrite,
    )
    found = value([finding])
    limits = Wanted.read({"max_op_guide_findings": 0}).limits
    (check,) = check_limits(Profile(name="", metrics={METRIC: found}), limits, None, False)
    return check.message


def op_guide_page() -> str:
    """Return the whole page."""
    head = OP_GUIDE_HEAD.format(message=finding_message())
    return head + "".join(map(rule, RULES.values()))


def options_page() -> str:
    """Return the page of the options: a table of flags, and one of values that only ini files have."""
    flags = [option for option in TABLE.values() if option.flag]
    inis = [option for option in TABLE.values() if not option.flag]
    return (
        f"{OPTIONS_HEAD}## Flags\n\n| flag | ini value | type | default | meaning |\n|---|---|---|---|---|\n"
        + "".join(f"| `{flag_form(option)}` {ini_cells(option)}" for option in flags)
        + "\n## Further ini values\n\n| ini value | type | default | meaning |\n|---|---|---|---|\n"
        + "".join(ini_cells(option) for option in inis)
    )


def flag_form(option: Option) -> str:
    """Return a flag with the name of its value, or its choices."""
    argument = option.metavar or "\\|".join(option.choices or ())
    return f"{option.flag} {argument}" if argument else option.flag


def ini_cells(option: Option) -> str:
    """Return the cells of a row from the ini value on."""
    cells = (
        f"`{option.ini}`" if option.ini else "–",
        ini_type(option) if option.ini else "–",
        option.shown.replace("__tfperf__/", "`__tfperf__/`") or "–",
        option.help,
    )
    return f"| {' | '.join(cells)} |\n"


TYPES = {
    LIMITS: "list of strings",
    COUNT: "whole number",
    STEPS: "whole number",
    SECONDS: "number, or string with a unit",
    SHARE: "number, or string with a unit",
}


def ini_type(option: Option) -> str:
    """Return the type of an ini value in words."""
    return TYPES.get(option.kind, "string")


HELD = {
    Profile: {"workload": Workload},
    Value: {"detail": Detail},
    Check: {"detail": Comparison},
    ProfiledTest: {"environment": Environment},
}
"""What the mappings of a run file hold."""
OF_A_VALUE = {
    "if": {"properties": {"value": {"type": "null"}}},
    "then": {"properties": {"why": {"type": "string"}, "source": {"type": "null"}}},
    "else": {"properties": {"why": {"type": "null"}, "source": {"$ref": "#/$defs/Source"}}},
}
DESCRIBED = (Run, ProfiledTest, Profile, Check, Value, Step, Table, Column, Advice, Metric)
"""Types whose fields have texts."""
SCHEMA_HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": f"urn:pytest-tfperf:run:{FORMAT}",
    "title": "A run file of pytest-tfperf",
    "description": (
        "What pytest --tfperf-report run.json writes: everything that one run measured and decided. A later version of "
        "the format may add fields; it takes none away and changes no meaning. An object of the tfperf commands' --json "
        "holds `profiles` of the same form."
    ),
}


def schema() -> str:
    """Return the JSON Schema of run files, made from the types that read them."""
    named = "#/$defs/{name}"
    held = [kind for fields in HELD.values() for kind in fields.values()]
    kinds = [Run, RemedyRecord, *held]
    _, parts = msgspec.json.schema_components(kinds, ref_template=named)
    for kind in (*DESCRIBED, RemedyRecord):
        part = parts[kind.__name__]
        for name, text in field_texts(kind).items():
            key = "value" if (kind, name) == (Value, "number") else name
            part["properties"][key]["description"] = text
        for name, inside in HELD.get(kind, {}).items():
            part["properties"][name] = {"$ref": named.format(name=inside.__name__)}
    parts["Profile"]["description"] = "One profiled step."
    del parts["Profile"]["properties"]["result"]
    whole = {"type": "string", "description": "The sentence, details and advice, a line each."}
    parts["Check"]["properties"]["message"] = whole
    parts["Value"] |= OF_A_VALUE
    record = parts["RemedyRecord"]
    record["required"] = [column.key for column in COLUMNS]
    record["properties"] = {key: record["properties"][key] for key in record["required"]}
    parts["Remedies"] = remedies_table(parts["Table"])
    tables = parts["Profile"]["properties"]["tables"]
    tables["properties"] = {REMEDIES: {"$ref": named.format(name="Remedies")}}
    run = parts.pop("Run")
    properties = {"format": {"enum": [FORMAT]}, **run["properties"]}
    required = ["format", *run["required"]]
    body = {"type": "object", "properties": properties, "required": required, "$defs": parts}
    return json.dumps(SCHEMA_HEAD | body, indent=2, ensure_ascii=False) + "\n"


def remedies_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the table of remedies: the fields of `RemedyRecord`, then any others."""
    own = table["properties"]
    of_record = "#/$defs/RemedyRecord/properties/"
    columns = [
        {
            "$ref": "#/$defs/Column",
            "properties": {"key": {"const": c.key}, "unit": {"const": c.unit}},
        }
        for c in COLUMNS
    ]
    cells = [{"$ref": f"{of_record}{column.key}"} for column in COLUMNS]
    others = own["rows"]["items"]
    row = {**others, "prefixItems": cells, "minItems": len(cells)}
    known = {"prefixItems": columns, "minItems": len(columns)}
    return {
        **table,
        "title": "Remedies",
        "description": "Remedies that were tried, the fastest first: a row has the fields of a RemedyRecord, in order.",
        "properties": {
            **own,
            "columns": {**own["columns"], **known},
            "rows": {**own["rows"], "items": row},
        },
    }


def field_texts(kind: type) -> dict[str, str]:
    """Return the strings behind the fields of a class, which say what the fields are."""
    [found] = ast.parse(inspect.getsource(kind)).body
    return {
        field.target.id: " ".join(text.value.value.split()).replace("None", "null")
        for field, text in zip(found.body, found.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


PAGES = {
    "reference/metrics.md": page,
    "reference/op_guide.md": op_guide_page,
    "reference/options.md": options_page,
    "run.schema.json": schema,
}

if __name__ == "__main__":
    import generate_api
    import generate_cli

    for name, make in {**PAGES, **generate_api.PAGES, **generate_cli.PAGES}.items():
        (Path(__file__).parent / name).write_text(make(), encoding="utf-8")
