"""Errors of the plugin in pytest's report of a test."""

import pytest

SUITE = """
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.tpu.tiles import generation

def test_caused():
    try:
        open("/missing/folder/file")
    except OSError as error:
        raise CaptureError("no folder can be made: mend it") from error

def test_raised_within():
    generation("v99")
"""


@pytest.mark.parametrize("shown", ["", "--tb=long", "--full-trace"])
def test_an_error_is_one_sentence_unless_more_is_asked_for(pytester, shown):
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-p", "tfperf", *filter(None, [shown]))
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "CaptureError: no folder can be made: mend it" in text
    assert "LimitError: " in text
    assert ("FileNotFoundError" in text) is bool(shown)
    assert ("tiles.py" in text) is bool(shown)
