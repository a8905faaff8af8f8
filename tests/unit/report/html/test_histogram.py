"""Histograms of step times, counted by hand: 304 wide between 48 and 352, bars up to 40 high."""

from collections import Counter

import numpy as np

from pytest_tfperf.report.html.histogram import histograms


def drawn(*values, named=True):
    chart = histograms({"blocks": ("own", values)}, named)
    (row,) = chart.rows
    return chart, row


def heights(row):
    """Heights of the bars, by the place of their middle."""
    return {
        float(path[1:].partition(",")[0]): float(path.rpartition("v-")[2]) for path, _ in row.bars
    }


def test_bars_count_the_samples_between_round_edges():
    chart, row = drawn(0.001, 0.0014, 0.0016, 0.002, 0.0029, 0.0029, 0.005)
    # seven samples: at least three bars, and the ticks make four of 76, from 1 ms to 5 ms
    assert [(tick.at, tick.text) for tick in chart.ticks] == [
        (48, "1 ms"),
        (124, "2 ms"),
        (200, "3 ms"),
        (276, "4 ms"),
        (352, "5 ms"),
    ]
    # an edge belongs to the bar behind it, and the last one to the last bar
    assert heights(row) == {86: 40, 162: 40, 314: 13.3}
    assert [text for _, text in row.bars] == [
        "3 from 1 ms to 2 ms",
        "3 from 2 ms to 3 ms",
        "1 from 4 ms to 5 ms",
    ]
    assert (row.most.at, row.most.text) == (row.base - 40, "3")
    assert (row.middle.at, row.middle.text, row.n) == (124, "2 ms", 7)
    assert chart.thick == 75
    assert chart.label == "blocks: 7 of 1 ms to 5 ms, median 2 ms"
    assert (chart.beyond, chart.unknown) == ("", "")


def test_without_names_all_bars_are_one_path():
    _, named = drawn(0.001, 0.002, 0.005)
    _, row = drawn(0.001, 0.002, 0.005, named=False)
    assert row.bars == (("".join(path for path, _ in named.bars), ""),)


def test_one_sample_is_one_bar_with_its_median_in_it():
    chart, row = drawn(0.0105)
    assert [text for _, text in row.bars] == ["1 from 10.5 ms to 10.6 ms"]
    ((place, high),) = heights(row).items()
    assert (high, row.most.text, row.n) == (40, "1", 1)
    assert abs(row.middle.at - place) <= (chart.thick + 1) / 2
    assert chart.ticks[0].text == "10.3 ms"


def test_equal_samples_are_one_bar():
    for seconds in [0.0, 1e-9, 0.01, 3.0, 5e4]:
        _, row = drawn(*[seconds] * 30)
        assert list(heights(row).values()) == [40], seconds
        assert (row.most.text, row.n) == ("30", 30), seconds


def test_missing_samples_have_no_chart_and_are_named_beside_others():
    assert histograms({"blocks": ("own", [])}) is None
    assert histograms({}) is None
    chart = histograms({"blocks": ("own", []), "turns": ("other", [0.01, 0.02])})
    assert (chart.unknown, [row.name for row in chart.rows]) == ("blocks", ["turns"])


def test_no_sample_is_lost_and_bars_are_as_many_as_its_root_up_to_fifty():
    for n in [1, 2, 9, 100, 2499, 10_000]:
        values = (0.01 * np.exp(0.1 * np.random.default_rng(n).normal(size=n))).tolist()
        chart, row = drawn(*values)
        counts = [int(text.partition(" ")[0]) for _, text in row.bars]
        assert sum(counts) == n == row.n, n
        assert max(counts) == int(row.most.text), n
        n_bins = round(304 / (chart.thick + 1))
        assert min(n**0.5, 40) <= n_bins <= 50, n
        assert all(48 < place < 352 for place in heights(row)), n


def test_counts_are_those_of_numpy():
    values = np.random.default_rng(1).integers(100, 200, 500) / 1e4
    chart, row = drawn(*values.tolist())
    n_bins = round(304 / (chart.thick + 1))
    low, high = (float(chart.ticks[end].text.partition(" ")[0]) / 1e3 for end in (0, -1))
    edges = np.linspace(low, high, n_bins + 1)
    wanted = Counter(np.digitize(values, edges - 1e-12).tolist())
    found = [int(text.partition(" ")[0]) for _, text in row.bars]
    assert found == [count for _, count in sorted(wanted.items())]


def test_the_rarest_bar_can_be_seen():
    _, row = drawn(*[0.010] * 9999, 0.019)
    assert min(heights(row).values()) == 1  # 0.004 of 40 by its share


def test_groups_share_the_axis_and_have_counts_of_their_own():
    chart = histograms(
        {"now": ("own", [0.001] * 30 + [0.005]), "before": ("other", [0.003, 0.003])}
    )
    now, before = chart.rows
    assert (now.kind, before.kind) == ("own", "other")
    assert (now.most.text, before.most.text) == ("30", "2")
    assert before.base - now.base == 66
    assert now.base < chart.bottom < chart.height
    assert chart.label == ("now: 31 of 1 ms to 5 ms, median 1 ms; before: 2 of 3 ms")


def test_samples_far_from_the_others_are_counted_and_do_not_squeeze_them():
    near = [0.010 + n / 100_000 for n in range(40)]  # around 10.2 ms; far is more than twice that
    chart, row = drawn(*near, 0.020, 0.022, 1.45)
    assert chart.beyond == "2 far slower, up to 1.45 s, are not drawn"
    assert sum(int(text.partition(" ")[0]) for _, text in row.bars) == 41
    assert (row.n, row.middle.text) == (43, "10.2 ms")
    assert chart.ticks[-1].text == "20 ms"
    assert drawn(*near, 1.0)[0].beyond == "1 far slower, up to 1 s, is not drawn"
    assert drawn(*near, 0.020)[0].beyond == ""
    assert drawn(*[0.01] * 6, 1.0)[0].beyond == ""  # of few, none is far
