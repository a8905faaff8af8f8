"""Planted causes from public reports: a failing test says what is slow, where, and what to try."""

import pytest
from helpers.causes import cases, expected, judged


def parameters():
    for path in cases():
        wanted = expected(path)
        marks = [pytest.mark.full if wanted.get("tier") == "full" else pytest.mark.nightly]
        if "unmet" in wanted:
            marks.append(pytest.mark.xfail(reason=wanted["unmet"], strict=True))
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", list(parameters()))
def test_a_message_names_the_planted_cause_and_its_remedy(path, processes, tmp_path):
    rows = judged(path, tmp_path)
    wrong = [f"{row.form}: {', '.join(row.wrong)}\n{row.message}" for row in rows if row.wrong]
    assert rows
    assert not wrong, "\n\n".join(["", *wrong])
