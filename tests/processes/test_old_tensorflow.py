"""A TensorFlow that is too old, in place of the installed one: profiled tests are not collected."""

import pytest

FAKE = "__version__ = '2.17.1'"
PLAIN = "def test_plain(): pass"


@pytest.mark.parametrize(
    "profiled",
    [
        "def test_fixture(tf_profile): pass",
        "import pytest\n@pytest.mark.tfperf(max_retraces=0)\ndef test_marker(): pass",
    ],
)
def test_profiled_tests_are_refused_at_collection_with_one_sentence(pytester, profiled):
    pytester.mkpydir("tensorflow").joinpath("__init__.py").write_text(FAKE)
    pytester.makepyfile(test_plain=PLAIN, test_profiled=f"import tensorflow\n{profiled}")
    pytester.makeini("[pytest]\npythonpath = .")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    assert "needs TensorFlow 2.18 or newer, and this is 2.17.1" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
