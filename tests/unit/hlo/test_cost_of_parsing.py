"""HLO text that means harm: its cost grows as the text does, and what is not closed is named."""

import re

import pytest

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.hlo import text_in
from pytest_tfperf.hlo.text_in import read_hlo

HEAD = "HloModule m\n"


class Counting:
    """A regular expression that counts the characters of its matches."""

    def __init__(self, pattern):
        self.pattern, self.characters = pattern, 0

    def _seen(self, match):
        self.characters += match.end() - match.start() + 1
        return match

    def sub(self, function, text):
        return self.pattern.sub(lambda match: function(self._seen(match)), text)

    def finditer(self, text, begin):
        return map(self._seen, self.pattern.finditer(text, begin))


@pytest.mark.parametrize("unit", ['\\"', "/* "], ids=["string", "comment"])
def test_what_is_not_closed_is_read_once_and_named(monkeypatch, unit):
    counts = []
    for n in (1000, 2000, 4000):
        counting = Counting(text_in._TOKEN)
        monkeypatch.setattr(text_in, "_TOKEN", counting)
        opened = '"' if unit[0] == "\\" else ""
        text = f"{HEAD}ENTRY e {{\na = f32[] f(), x={opened}{unit * n}\n}}"
        with pytest.raises(TfperfError, match=r"m\.hlo:3: not closed on its line: "):
            read_hlo(text, "m.hlo")
        counts.append(counting.characters)
        monkeypatch.undo()
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.01)


def test_comments_that_are_closed_on_their_line_are_removed():
    for comment in ["/* a */", '/* " */', "/**/ /* b */", "/*/*/"]:
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
