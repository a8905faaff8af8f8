"""
Damaged HLO text, and what must hold of what `tfperf padding` makes of it.

    HloTexts(folder).take(mutant(raw, seed))
"""

import random
import re

from helpers.commands import USAGE, check_answer, ran
from helpers.fuzz import BYTEWISE

WORDS = [
    *("{", "}", "(", ")", "[", "]", "=", ",", "->", '"', "\\", "/*", "*/", "%", ":", "{1,0:T(8,128)}", "ROOT", "ENTRY", "HloModule"),
    *("f32", "bf16[8,4]{1,0}", "f32[]", "s32[0]", "pred[1]", "f8e4m3fn[3]", "u4[7]", "token[]", "opaque[]", "(f32[2], s32[])", "f32[<=8]", "f32[?,3]"),
    *("parameter(0)", "parameter(99)", "dot", "convolution", "fusion", "while", "reduce", "tuple", "get-tuple-element", "custom-call", "all-reduce", "conditional", "call"),
    *("lhs_contracting_dims={1}", "calls=%f", "body=%e", "to_apply=%e", "window={size=3x3 pad=1_1x1_1}", "dim_labels=b01f_01io->b01f", "metadata={op_name=\"x\"}", "index=7"),
    *("\n", "\r\n", "\x00", "\x1b[31m", "\u202e", "\n::error::x\n", "é", "nan", "inf", "1e999", "-1", "0", "1", "4294967296", "9" * 25, "8,8,8,8,8,8,8,8"),
]  # fmt: skip
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def mutant(raw, seed):
    rng = random.Random(seed)
    if rng.random() < 0.1:
        return rng.choice(BYTEWISE)(rng, raw)
    text = raw.decode()
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        text = rng.choice(CHANGES)(rng, text)
    return text.encode()


def _tokens(rng, text):
    """The tokens, and the place of one that is no space."""
    tokens = _TOKEN.findall(text)
    places = [place for place, token in enumerate(tokens) if not token.isspace()]
    return tokens, rng.choice(places or [0])


def replaced(rng, text):
    tokens, place = _tokens(rng, text)
    tokens[place : place + 1] = [rng.choice([rng.choice(WORDS), rng.choice(tokens or [""])])]
    return "".join(tokens)


def dropped(rng, text):
    tokens, place = _tokens(rng, text)
    del tokens[place : place + rng.choice([1, 1, 2, 5])]
    return "".join(tokens)


def added(rng, text):
    tokens, place = _tokens(rng, text)
    tokens[place:place] = [rng.choice(WORDS)] * rng.choice([1, 1, 1, 2, 50])
    return "".join(tokens)


def number(rng, text):
    numbers = list(re.finditer(r"\d+", text))
    if not numbers:
        return text
    at = rng.choice(numbers)
    other = rng.choice(
        ["0", "1", "3", "7", "127", "129", "65536", "4294967296", "9" * 19, "9" * 40]
    )
    return text[: at.start()] + other + text[at.end() :]


def lines(rng, text):
    """Lines in another order, twice, or gone."""
    rows = text.split("\n")
    place = rng.randrange(len(rows))
    change = rng.randrange(4)
    if change == 0:
        rng.shuffle(rows)
    elif change == 1:
        rows.insert(rng.randrange(len(rows)), rows[place])
    elif change == 2:
        del rows[place]
    else:
        rows[place:place] = [rows[place]] * 30
    return "\n".join(rows)


CHANGES = (replaced, replaced, replaced, dropped, added, number, number, lines)


class HloTexts:
    """A folder with a text, which is given to `tfperf padding` as text and as JSON."""

    def __init__(self, folder):
        self._path = folder / "mutant.txt"
        self.n_taken = self.n_read = 0
        """Texts, and those of them that were read."""

    def take(self, raw):
        self._path.write_bytes(raw)
        option = ("-v", "--json")[self.n_taken % 2]
        self.n_taken += 1
        status, out, err = ran("padding", self._path, option)
        check_answer(status, out, err, as_json=option == "--json")
        self.n_read += status != USAGE
