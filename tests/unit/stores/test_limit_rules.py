"""Files of limits for many traces."""

import re

import pytest
from helpers.refusals import refusal

from pytest_tfperf.errors import LimitError
from pytest_tfperf.stores.checks import read_rules


@pytest.fixture
def rules(tmp_path):
    def write(text):
        path = tmp_path / "rules.toml"
        path.write_text(text)
        return read_rules(path)

    return write


def limits(rules, name):
    return [limit.argument for limit in rules.limits_of(name)]


def test_a_section_takes_the_place_of_limits_above(rules):
    found = rules(
        'max_input_bound = "5%"\nretraces = 0\n'
        '[[rules]]\nmatch = "*/eval_*/*"\nmax_input_bound = 0.2\n'
        '[[rules]]\nmatch = "*/eval_slow/*"\nmax_input_bound = "40%"\nmin_device_busy = "50%"\n'
    )
    assert limits(found, "s3://b/train/x") == ["max_input_bound='5%'", "retraces='0'"]
    assert limits(found, "s3://b/eval_1/x") == ["max_input_bound='0.2'", "retraces='0'"]
    assert limits(found, "s3://b/eval_slow/a/x")[0] == "max_input_bound='40%'"
    assert found.metrics == ("input_bound", "retraces", "device_busy")
    assert found.unused(["s3://b/train/x", "s3://b/eval_1/x"]) == ["*/eval_slow/*"]


def test_what_is_no_limit_is_refused(rules):
    for text, why in [
        ("max_input_bound", "not TOML"),
        ("", "no limit; write some"),
        ("[[rules]]\nmax_input_bound = 1", "rule 1: give the glob"),
        ('[[rules]]\nmatch = "*"', "rule 1: no limit"),
        ('[rules]\nmatch = "*"', r"write \[\[rules\]\]"),
        ('max_input_bund = "5%"', "did you mean 'max_input_bound'"),
        ("max_input_bound = [1]", "needs one number or text"),
        ("max_input_bound = true", "needs one number or text"),
        ('max_input_bound = "5%, retraces = 0"', "needs one number or text"),
        ("steps = 3", "steps is not a limit"),
        ("max_input_bound = 5", "above the whole"),
        ("max_input_bound = nan", "max_input_bound: 'nan'"),
        ("max_retraces = 1" + "\n" * 1_000_000 + "retraces = 0", "at most 1 MB are read"),
    ]:
        said = refusal(LimitError, rules, text)
        assert re.search(why, said), text[:80]
        assert "\n" not in said, text[:80]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(LimitError, match="cannot be read: No such file"):
        read_rules(tmp_path / "none.toml")
