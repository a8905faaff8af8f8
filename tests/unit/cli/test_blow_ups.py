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
BOUNDED = ("dimensions", "ranks of 63")
"""Forms of arrays of many dimensions, whose orders are searched; the search grows faster, up to the 64 dimensions that are read."""
TIMELINES = (
    *("overlapping events", "overlapping in two", "staircase", "lines of a plane", "planes of an event", "gpus"),
    *("allocators", "stats of names", "empty stats", "overlapping steps"),
)  # fmt: skip
PROFILES = (
    *("empty planes", "named planes", "gpus", "empty lines", "nested events", "overlapping events", "overlapping steps"),
    *("empty stats", "repeated stats", "stats of names", "allocators", "allocators and steps", "collectives", "modules"),
    *("iterators", "a deep iterator", "thunks", "programs and steps"),
)  # fmt: skip


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


def assert_linear(counts, sizes=(1, 2, 4), least=0):
    """
    Check the growth of the work against that of the sizes, which three forms have.

    `least` is the least work for the first doubling. Some tables show few events or none, so that more events may be less work.
    """
    first, second = max(counts[1] - counts[0], least), counts[2] - counts[1]
    longer = (sizes[2] - sizes[1]) / (sizes[1] - sizes[0])
    assert second <= GROWTH / 2 * longer * first + FEW, counts


def grows(kind, form, n, take, least=0.0):
    """
    Check the work for a form with n, twice and four times as many; the first time fills caches.

    `least` is a share of all work, as in `assert_linear`.
    """
    raws = [made(kind, form, times * n) for times in (1, 2, 4)]
    n_calls(take, raws[0])
    counts = [n_calls(take, raw) for raw in raws]
    assert_linear(counts, list(map(len, raws)), least * counts[1])


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


@pytest.mark.parametrize("form", TIMELINES)
@pytest.mark.parametrize("ending", [".json", ".pftrace"])
def test_timelines_grow_as_the_trace(tmp_path, form, ending):
    grows("trace", form, 24, exports(tmp_path, ending))


@pytest.mark.parametrize("form", PROFILES)
def test_profiles_grow_as_the_trace(form):
    grows("trace", form, 24, found)


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS["trace"] if form not in PROFILES])
def test_other_profiles_grow_as_the_trace(form):
    grows("trace", form, 100, found, least=0.5)


@pytest.mark.parametrize("form", [form for form in FORMS["hlo"] if form not in BOUNDED])
def test_padding_grows_as_the_text(tmp_path, form):
    take = reads(tmp_path, "form.txt", lambda path: padding_profile(path, None, True))
    grows("hlo", form, 32, take)


@pytest.mark.parametrize("form", FORMS["run"])
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


@pytest.mark.parametrize(
    ("kind", "form"), [("trace", "filled gpus"), ("hlo", "chain"), ("run", "notes")]
)
def test_contents_have_almost_the_size_that_is_asked_for(kind, form):
    assert 19_000 < len(content(kind, form, 20_000)) <= 20_000
