"""
Files that mean harm, by kind: much of one thing each. `FORMS[kind][name](n)` has n of them.

    raw = content("trace", "steps", 1_000_000)          # just below so many bytes
"""

import tempfile
from pathlib import Path

from helpers.blow_up_hlo import FORMS as HLO
from helpers.blow_up_json import BASELINES, RUNS
from helpers.blow_up_traces import FORMS as TRACES
from helpers.fuzz_baselines import Baselines

FORMS = {"trace": TRACES, "hlo": HLO, "run": RUNS, "baseline": BASELINES}
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
        Baselines(Path(folder)).compare(kind, Path(path).read_bytes())
