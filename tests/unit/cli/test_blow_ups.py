"""
Files that hold much of one thing: the work grows as the file does. benchmarks/blow_ups.py measures time and memory of all forms.

Work is the number of calls of functions, of Python and of C, so that it is the same on every machine.
"""

import sys

import pytest
from helpers.blow_ups import FORMS, content, made
from helpers.fuzz import found

from pytest_tfperf.cli.padding import padding_profile
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.export.formats import export_traces
from pytest_tfperf.report.run_file import read_run

GROWTH = 2.3
"""Most that the work for the second doubling may exceed that for the first: 2 where it is linear, 4 where it is quadratic."""
FEW = 400
"""Calls that may come on top: buffers double, and caches fill."""


def n_calls(function, *arguments):
    """The number of calls that a function makes; an error of the package is an answer too."""
    n = 0

    def count(frame, event, argument):
        nonlocal n
        n += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(*arguments)
    except TfperfError:
        pass
    finally:
        sys.setprofile(before)
    return n


def assert_linear(counts, sizes=(1, 2, 4)):
    """Check the growth of the work against that of the sizes, which three forms have."""
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    longer = (sizes[2] - sizes[1]) / (sizes[1] - sizes[0])
    assert second <= GROWTH / 2 * longer * first + FEW, counts


def grows(kind, form, n, take):
    """Check the work for a form with n, twice and four times as many; the first time fills caches."""
    raws = [made(kind, form, times * n) for times in (1, 2, 4)]
    n_calls(take, raws[0])
    counts = [n_calls(take, raw) for raw in raws]
    assert_linear(counts, list(map(len, raws)))


def exports(folder, ending):
    def take(raw):
        path = folder / "form.xplane.pb"
        path.write_bytes(raw)
        export_traces([path], folder / f"out{ending}")

    return take


def reads(folder, name, read):
    def take(raw):
        (folder / name).write_bytes(raw)
        read(folder / name)

    return take


def forms(kind, usual):
    """All forms of a kind; those but the usual one are for the night."""
    return [
        form if form == usual else pytest.param(form, marks=pytest.mark.nightly)
        for form in FORMS[kind]
    ]


@pytest.mark.full
@pytest.mark.parametrize("form", forms("trace", "overlapping events"))
def test_timelines_grow_as_the_trace(tmp_path, form):
    grows("trace", form, 24, exports(tmp_path, ".json"))


@pytest.mark.full
@pytest.mark.parametrize("form", forms("trace", "modules"))
def test_profiles_grow_as_the_trace(form):
    grows("trace", form, 24, found)


@pytest.mark.full
@pytest.mark.parametrize("form", forms("hlo", "doubling calls"))
def test_padding_grows_as_the_text(tmp_path, form):
    take = reads(tmp_path, "form.txt", lambda path: padding_profile(path, None, True))
    grows("hlo", form, 32, take)


@pytest.mark.full
@pytest.mark.parametrize("form", forms("run", "tests"))
def test_reading_grows_as_the_run_file(tmp_path, form):
    grows("run", form, 4, reads(tmp_path, "form.json", read_run))


def test_quadratic_work_is_found():
    def pairs(n):
        for _ in range(n):
            for _ in range(n):
                len("")

    with pytest.raises(AssertionError):
        assert_linear([n_calls(pairs, n) for n in (20, 40, 80)])
    assert_linear([n_calls(lambda n: [len("") for _ in range(n)], n) for n in (1000, 2000, 4000)])


def test_contents_have_almost_the_size_that_is_asked_for():
    for kind, form in (("trace", "gpus"), ("hlo", "wide tuple"), ("run", "a long name")):
        assert 19_000 < len(content(kind, form, 20_000)) <= 20_000, form
