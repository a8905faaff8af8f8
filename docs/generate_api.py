"""Write docs/reference/api.md from the signatures and docstrings of what `pytest_tfperf` exports."""

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import pytest_tfperf
from pytest_tfperf.plugin.registry import pytest_tfperf_metrics

HEAD = """# API

These names are importable from `pytest_tfperf`:

```python
from pytest_tfperf import Profile, TfProfile


def test_step(tf_profile: TfProfile) -> None:
    profile: Profile = tf_profile(train_step, dataset)
```

Type checkers know every built-in metric of a profile. This page is written by `docs/generate.py` from the signatures and docstrings.
"""
METRICS = """
Each metric of [Metrics](metrics.md) is an attribute of a profile, and so is each [custom metric](../how_to/custom_metrics.md). A metric with the unit count
is an `int`, any other a `float`. Times are in seconds, shares from 0 to 1. Reading an unknown one raises `UnknownMetric` with the reason.
"""
FIXTURE = "__call__ steps fit evaluate predict trace compare compare_backends try_remedies capture workers export grappler profile profiles"
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "The fixture": {"TfProfile": FIXTURE, "BracketedTrace": "", "Bracketed": "step"},
    "Results": {
        "Profile": "interference registry value",
        "Value": "low high",
        "Table": "records",
        **dict.fromkeys(("Column", "Step", "Advice", "Source", "Verdict"), ""),
    },
    "Comparisons of variants": {
        "Comparison": "variants step_time speedup table",
        "Ratio": "low high",
        "Interval": "",
    },
    "Remedies": {
        "Remedies": "best records table lines",
        "Tried": "keeps_outputs is_fair helps",
        "RemedyRecord": "",
    },
    "Custom metrics": {"Registry": "add rows", "Metric": ""},
    "Many traces": {"analyze_traces": "", "FleetSummary": "", "AlignedRun": ""},
}
"""Names by section, with the members of classes."""
WIDTH = 100
SHOWN_AS = {"TfProfile": "tf_profile", "Registry": "registry"}
"""Objects that users get by these names."""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        parts += [part for name, members in names.items() for part in entry(name, members.split())]
        if title == "Results":
            parts.append(f"\n### Metrics of a profile\n{METRICS}")
        if title == "Custom metrics":
            parts += function("pytest_tfperf_metrics", pytest_tfperf_metrics, "###")
    shown = {name for names in SECTIONS.values() for name in names}
    parts.append("\n## Errors and warnings\n\n| name | meaning |\n|---|---|\n")
    for name in sorted(set(pytest_tfperf.__all__) - shown):
        text = " ".join(inspect.getdoc(getattr(pytest_tfperf, name)).split())
        parts.append(f"| `{name}` | {text} |\n")
    return "".join(parts)


def entry(name: str, members: Sequence[str]) -> Iterator[str]:
    """Yield the text of a class, its fields and members, or of a function."""
    found = getattr(pytest_tfperf, name)
    if not inspect.isclass(found):
        yield from function(name, found, "###")
        return
    yield f"\n### {name}\n\n{described(found)}"
    if issubclass(found, enum.Enum):
        yield f"\n{', '.join(f'`{one.name}`' for one in found)}\n"
    elif fields := list(fields_of(found)):
        yield "\n| field | type | meaning |\n|---|---|---|\n"
        yield from fields
    for member in members:
        called = SHOWN_AS.get(name, name)
        shown = called if member == "__call__" else f"{called}.{member}"
        yield from function(shown, inspect.getattr_static(found, member))


def fields_of(kind: type) -> Iterator[str]:
    """Yield a row for each field of a class that is public, with the string behind it."""
    body = source(kind).body
    for field, text in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and not field.target.id.startswith("_"):
            is_said = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            meaning = " ".join(str(text.value.value).split()) if is_said else ""
            shown = ast.unparse(field.annotation).replace("|", "\\|")
            yield f"| `{field.target.id}` | `{shown}` | {meaning} |\n"


def function(name: str, found: object, level: str = "####") -> Iterator[str]:
    """Yield the text of a function, a method or a property."""
    is_property = isinstance(found, property)
    found = found.fget if is_property else inspect.unwrap(getattr(found, "__func__", found))
    node = source(found)
    node.args.args = [one for one in node.args.args if one.arg not in ("self", "cls")]
    arguments = "" if is_property else f"({', '.join(parameters(node.args))})"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    code = f"{name}{arguments}{returned}"
    if len(code) > WIDTH:
        inside = "".join(f"    {one},\n" for one in parameters(node.args))
        code = f"{name}(\n{inside}){returned}"
    yield f"\n{level} {name}\n\n```python\n{code}\n```\n\n{described(found)}"


def parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters of a function as in code."""
    places = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(places) - len(arguments.defaults))
    yield from map(parameter, places, [*missing, *arguments.defaults])
    if arguments.vararg:
        yield f"*{parameter(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    yield from map(parameter, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg:
        yield f"**{parameter(arguments.kwarg)}"


def parameter(one: ast.arg, default: ast.expr | None = None) -> str:
    """Return a parameter with its type and default."""
    kind = f": {ast.unparse(one.annotation)}" if one.annotation else ""
    return f"{one.arg}{kind}" + (f" = {ast.unparse(default)}" if default else "")


def source(found: object) -> ast.ClassDef | ast.FunctionDef:
    """Return the parsed source of a class or function."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    return node


def described(found: object) -> str:
    """Return a docstring as Markdown: its paragraphs, and a list for each of its sections."""
    text = inspect.getdoc(found) or ""
    first, *sections = re.split(r"^(Args|Returns|Raises):\n", text, flags=re.MULTILINE)
    parts = [paragraph for paragraph in first.strip().split("\n\n") if paragraph]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = re.split(r"\n(?=\S)", textwrap.dedent(body).strip())
        items = [" ".join(one.split()) for one in entries]
        if title == "Returns":
            parts.append(f"Returns: {' '.join(items)}")
        else:
            named = [re.sub(r"^([\w, *]+): ", r"`\1`: ", item) for item in items]
            parts.append("\n".join((f"{title}:", "", *(f"- {item}" for item in named))))
    return "\n\n".join(" ".join(p.split("\n")) if "\n\n-" not in p else p for p in parts) + "\n"


PAGES = {"reference/api.md": page}
