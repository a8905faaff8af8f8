"""HLO text that means harm: its cost grows as the text does, and what is not closed is named."""

import re

import pytest

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.hlo import lexer
from pytest_tfperf.hlo.parser import read_hlo

HEAD = "HloModule m\n"


class Counting:
    """A regular expression that counts the characters of its matches."""

    def __init__(self, pattern):
        self.pattern, self.characters = pattern, 0

    def _seen(self, match):
        self.characters += 1 if match is None else match.end() - match.start() + 1
        return match

    def sub(self, function, text):
        return self.pattern.sub(lambda match: function(self._seen(match)), text)

    def findall(self, text):
        return [self._seen(match)[0] for match in self.pattern.finditer(text)]

    def finditer(self, text, begin=0):
        return map(self._seen, self.pattern.finditer(text, begin))


@pytest.mark.parametrize(
    ("unit", "what"), [('\\"', "string"), ("/* ", "comment")], ids=["string", "comment"]
)
def test_what_is_not_closed_is_read_once_and_named(monkeypatch, unit, what):
    counts = []
    for n in (1000, 2000, 4000):
        counting = Counting(lexer._COMMENT)
        monkeypatch.setattr(lexer, "_COMMENT", counting)
        text = HEAD + ('"' if what == "string" else "") + unit * n
        with pytest.raises(TfperfError, match=f"m.hlo:2: this {what} is not closed: "):
            read_hlo(text, "m.hlo")
        counts.append(counting.characters)
        monkeypatch.undo()
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.01)


def test_a_string_over_two_lines_is_read_once_a_line(monkeypatch):
    # the first line of an open string, which ends on the next line
    counting = Counting(lexer._BRACKET)
    monkeypatch.setattr(lexer, "_BRACKET", counting)
    with pytest.raises(TfperfError):
        read_hlo(f'{HEAD}"' + '\\"' * 5000 + '\n"', "m.hlo")
    assert counting.characters < 3 * 10_000


def test_comments_that_are_closed_are_removed():
    for comment in ["/* a */", "// a", "/* a\n b */", '/* " */', "// /* a"]:
        text = f"{HEAD}\nENTRY e {{ {comment}\n  ROOT a = f32[8] parameter(0)\n}}\n{comment}"
        assert len(read_hlo(text, "m.hlo")) == 1, comment


@pytest.mark.parametrize("n", [64, 65])
def test_an_array_of_many_dimensions_is_refused(n):
    text = f"{HEAD}\nENTRY e {{\n  ROOT a = f32[{','.join(['1'] * n)}] parameter(0)\n}}\n"
    if n == 64:
        assert read_hlo(text, "m.hlo")
        return
    with pytest.raises(TfperfError, match="more than 64 dimensions") as refused:
        read_hlo(text, "m.hlo")
    assert not re.search("(1,){60}", str(refused.value))
