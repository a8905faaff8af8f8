"""
Damaged JSON files.

    mutant(raw, seed)                   # bytes; the same bytes and seed give the same mutant

Most mutants are JSON in which a few places hold something else: mostly another value of the same type, which a schema
may let pass. Others have what is no JSON (NaN, keys that stand twice), or damaged bytes.
"""

import copy
import json
import random
import re

from helpers.fuzz import BYTEWISE

NUMBERS = [
    *(0, -0.0, 1, -1, 2, 3, 7, 0.5, 1.5, -0.001, 1e-9, 5e-324, -5e-324, 1e-300, 1e-100, 1e15, 1e17),
    *(1e99, -1e99, 1e100, 1e101, 1e299, 1e300, 2**31, 2**53 + 1, 2**63, 10**17, 10**18, -(10**18)),
]  # fmt: skip
TEXTS = [
    *("", " ", "\n", "0", "-1", "9" * 30, "x" * 3000, "x y" * 40, "🚀", "é\u0301", "\ud800", "a\udfffb", "\u202e", "\x00", "\x1b[31m"),
    *("=1+1", "@a", "+1", "-1", "|", "| x |", "`", "```", "~~~", "<b>", "</script>", "&amp;", "{{ x }}", "{0}", "%s", "$x", "\\", "'", '"'),
    *("../x", "/", ".", "..", "a/b", "C:\\x", "http://x", "javascript:x", "\n::error::x", "\n##[add-mask]x", "\r\n"),
    *("step_time", "retraces", "input_bound", "flops", "peak_memory", "eval", "test_step", "test_model.py", "comparison", "stages", "graph"),
    *("s", "bytes", "0..1", "count", "1/s", "FLOP", "ratio", "passed", "skipped", "PASS", "FAIL", "NEW", "limit", "baseline", "compare"),
    *("max", "equal", "lower", "program", "machine", "platform", "step", "compute", "memory", "against", "input", "other", "trace", "timed"),
    *("0001-01-01", "9999-12-31T23:59:59+00:00", "2026-01-31T12:00:00+00:00", "2026-13-45", "now"),
]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[]], [None], {"": ""}, {"a": {"b": 1}}, [1, 2], ["x"], [["a", "b"]]]  # fmt: skip
LITERALS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 20, "9" * 400, "1" + "0" * 5000, "0x1", "01", "1.", ".5", "1e", "-"]  # fmt: skip


def mutant(raw, seed):
    rng = random.Random(seed)
    if rng.random() < 0.07:
        for _ in range(rng.randint(1, 2)):
            raw = rng.choice(BYTEWISE)(rng, raw)
        return raw
    content = json.loads(raw)
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3, 8])):
        content = rng.choice(CHANGES)(rng, content)
    text = json.dumps(content, ensure_ascii=rng.random() < 0.9)
    if rng.random() < 0.03:
        text = rng.choice(TEXTWISE)(rng, text)
    return text.encode("utf-8", "surrogatepass")


def places(content):
    """Holder and key of every part of the content."""
    waiting = [content]
    while waiting:
        holder = waiting.pop()
        for key, part in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(part, (dict, list)):
                waiting.append(part)


def _place(rng, content, kind=object):
    """Holder and key of a part of this type; a holder that nobody sees where there is none."""
    found = (
        [(holder, key) for holder, key in places(content) if isinstance(holder[key], kind)]
        if isinstance(content, (dict, list))
        else []
    )
    # those near the root are few among hundreds of cells
    near = [place for place in found if isinstance(place[0], dict)]
    return rng.choice(near if near and rng.random() < 0.5 else found) if found else ([None], 0)


def like(rng, content):
    """Another value of the same type."""
    holder, key = _place(rng, content)
    old = holder[key]
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, (int, float)):
        holder[key] = rng.choice(
            [rng.choice(NUMBERS), -old, old + 1, old * 10, old / 10, old * (1 + rng.random())]
        )
    elif isinstance(old, str):
        holder[key] = rng.choice(
            [rng.choice(TEXTS), old + rng.choice(TEXTS), rng.choice(TEXTS) + old]
        )
    else:
        return shuffle(rng, content)
    return content


def other(rng, content):
    holder, key = _place(rng, content)
    holder[key] = copy.deepcopy(rng.choice([*OTHERS, rng.choice(NUMBERS), rng.choice(TEXTS)]))
    return content


def drop(rng, content):
    holder, key = _place(rng, content)
    del holder[key]
    return content


def double(rng, content):
    holder, key = _place(rng, content)
    if isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(rng.choice([1, 1, 3, 40]))]
    return content


def shuffle(rng, content):
    holder, key = _place(rng, content, (list, dict))
    part = holder[key]
    if isinstance(part, list):
        rng.shuffle(part)
    elif isinstance(part, dict):
        rows = list(part.items())
        rng.shuffle(rows)
        holder[key] = dict(rows)
    return content


def empty(rng, content):
    holder, key = _place(rng, content, (list, dict))
    if isinstance(holder[key], (list, dict)):
        holder[key] = type(holder[key])()
    return content


def move(rng, content):
    """A part of the content in another place."""
    (holder, key), (source, name) = _place(rng, content), _place(rng, content)
    holder[key] = copy.deepcopy(source[name])
    return content


def swap(rng, content):
    """The values of two keys of one name, as of two tests, changed places; or those of two numbers."""
    holder, key = _place(rng, content)
    same = (
        [(one, name) for one, name in places(content) if name == key]
        if isinstance(content, (dict, list))
        else []
    )
    if same:
        one, name = rng.choice(same)
        one[name], holder[key] = copy.deepcopy(holder[key]), copy.deepcopy(one[name])
    return content


def rename(rng, content):
    holder, key = _place(rng, content)
    if isinstance(holder, dict):
        name = rng.choice([rng.choice(TEXTS), key + rng.choice(TEXTS), rng.choice(list(holder))])
        holder[name] = holder.pop(key)
    return content


def add(rng, content):
    holder, key = _place(rng, content, dict)
    if isinstance(holder[key], dict):
        holder[key][rng.choice(TEXTS)] = rng.choice([*NUMBERS, *TEXTS, None])
    return content


def deepen(rng, content):
    holder, key = _place(rng, content)
    for _ in range(rng.choice([1, 2, 5, 70])):
        holder[key] = rng.choice([[holder[key]], {"a": holder[key]}])
    return content


CHANGES = (*10 * [like], other, other, drop, double, shuffle, empty, move, swap, rename, add, deepen)  # fmt: skip


def literals(rng, text):
    """NaN and the like in the place of a number, but not in a text, where it is none."""
    numbers = list(re.finditer(r'(?<=[^\\]": )-?\d[\d.eE+-]*', text))
    if not numbers:
        return text
    at = rng.choice(numbers)
    return text[: at.start()] + rng.choice(LITERALS) + text[at.end() :]


def twice(rng, text):
    """A key that stands twice in one object."""
    at = text.find("{", rng.randrange(max(1, len(text) - 1)))
    key = rng.choice(['"format": 1', '"tests": []', '"": 0', '"name": "x"', '"runs": []'])
    return f"{text[: at + 1]}{key}, {text[at + 1 :]}" if at >= 0 else text


def deep(rng, text):
    return rng.choice(
        ["[" * 100_000, "[" * 70 + "]" * 70, '{"a":' * 3000, f'{{"tests": {"[" * 65}{"]" * 65}}}']
    )


def framed(rng, text):
    """Another encoding mark, conflict marks of a merge, or something behind the end."""
    marks = f"<<<<<<< ours\n{text}\n=======\n{text}\n>>>>>>> theirs\n"
    return rng.choice(
        [
            "\ufeff" + text,
            text + text,
            text + "\x00",
            marks,
            "",
            " ",
            "null",
            "0",
            '"x"',
            "[]",
            "{}",
        ]
    )


TEXTWISE = (literals, literals, literals, twice, deep, framed)
