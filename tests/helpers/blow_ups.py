"""
Files that mean harm, by kind: much of one thing each. `FORMS[kind][name](n)` has n of them.

    raw = content("trace", "gpus", 1_000_000)          # just below so many bytes

They are those that took minutes once, and one or two for each reader.
"""

import json
import tempfile
from pathlib import Path

from helpers.blow_up_traces import FORMS as TRACES
from helpers.fuzz_targets import CORPUS, TARGETS

P = "p = f32[4]{0} parameter(0)"


def hlo(*rows, before=""):
    """A module of one computation; the last row is its result."""
    *rows, last = rows
    body = "".join(f"  {row}\n" for row in rows)
    return f"HloModule m\n{before}ENTRY e {{\n{body}  ROOT {last}\n}}\n"


def open_string(n):
    return hlo(P, 'a = f32[4] custom-call(p), custom_call_target="' + '\\"' * n)


def wide_tuple(n):
    return hlo(f"p = ({', '.join(['f32[4]'] * n)}) parameter(0)")


def doubling_calls(n):
    """A chain of computations, each calls the one before it twice: 2^n calls."""
    parts = [f"c0 {{\n  ROOT {P}\n}}\n"]
    for k in range(1, n + 1):
        calls = (
            f"x = f32[4] call(p), to_apply=c{k - 1}\n  ROOT y = f32[4] call(x), to_apply=c{k - 1}"
        )
        parts.append(f"c{k} {{\n  {P}\n  {calls}\n}}\n")
    return hlo(P, f"y = f32[4] call(p), to_apply=c{n}", before="".join(parts))


def deep_lists(n):
    return "[" * n + "]" * n


def corpus(name):
    return json.loads((CORPUS / name).read_text("utf-8"))


def tests(n):
    run = corpus("run/every_field.json")
    test, keys = run["tests"][0], ("nodeid", "key", "file")
    run["tests"] = [{**test, **{key: f"{test[key]}{k}" for key in keys}} for k in range(n)]
    return json.dumps(run)


def a_long_name(n):
    run = corpus("run/every_field.json")
    run["tests"][0]["profiles"][0]["name"] = "x" * n
    return json.dumps(run)


def entries(n):
    stored = corpus("structure/seven_runs.json")
    [(key, entry)] = stored["tests"].items()
    stored["tests"] = {f"{key}{k or ''}": entry for k in range(n)}
    return json.dumps(stored)


def a_history(n):
    stored = corpus("timing/seven_runs.json")
    [entry] = stored["tests"].values()
    times = [0.0125 + k % 7 * 1e-4 for k in range(n)]
    entry["runs"] = [
        {**entry["runs"][0], "step_time": time, "commit": f"c{k}"} for k, time in enumerate(times)
    ]
    return json.dumps(stored)


FORMS = {
    "trace": TRACES,
    "hlo": {
        "an open string": open_string,
        "wide tuple": wide_tuple,
        "doubling calls": doubling_calls,
    },
    "run": {"deep lists": deep_lists, "tests": tests, "a long name": a_long_name},
    "baseline": {"structure: entries": entries, "timing: a history": a_history},
}
ENDINGS = {"trace": ".xplane.pb", "hlo": ".txt", "run": ".json", "baseline": ".json"}


def made(kind, name, n):
    """The bytes of a form with n of what it has many of."""
    raw = FORMS[kind][name](n)
    return raw if isinstance(raw, bytes) else raw.encode()


def content(kind, name, size):
    """A content of a form that has at most so many bytes, and hardly fewer."""
    few, many = 50, 100
    while len(raw := made(kind, name, many)) <= size:
        few, many = many, 2 * many
        if many > 4 * size:  # more of it makes no longer file
            return raw
    for _ in range(5):
        middle = (few + many) // 2
        few, many = (middle, many) if len(made(kind, name, middle)) <= size else (few, middle)
    return made(kind, name, few)


def compare(kind, path):
    """Compare with a stored baseline of a kind, `structure` or `timing`, and accept a run over it."""
    with tempfile.TemporaryDirectory() as folder:
        TARGETS["baselines"](folder).take(f"{kind}/form.json", Path(path).read_bytes())
