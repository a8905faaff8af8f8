"""A TensorFlow that is too old, in place of the installed one: profiled tests are not collected."""

import pytest

FAKE = "__version__ = '2.17.1'"
PLAIN = "def test_plain(): pass"
FIXTURE = "import tensorflow\ndef test_fixture(tf_profile): pass"
MARKER = """
import pytest
import tensorflow
@pytest.mark.tfperf(max_retraces=0)
def test_marker(): pass
"""


@pytest.mark.full
def test_profiled_tests_are_refused_at_collection_with_one_sentence(pytester, processes):
    pytester.mkpydir("tensorflow").joinpath("__init__.py").write_text(FAKE)
    pytester.makepyfile(test_plain=PLAIN, test_fixture=FIXTURE, test_marker=MARKER)
    pytester.makeini("[pytest]\npythonpath = .")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    said = "needs TensorFlow 2.18 or newer, and this is 2.17.1"
    sections = result.stdout.str().partition(" ERRORS ")[2].partition("short test summary")[0]
    assert sections.count(said) == 2
    assert "Traceback" not in result.stdout.str()
