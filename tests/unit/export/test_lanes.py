import random

from pytest_tfperf.export.timeline import nested_lanes


def one_lane_after_the_other(begins, ends, places):
    """The same lanes, found in a time that grows with their number."""
    while places:
        kept, rest, open_ends = [], [], []
        for place in places:
            begin, end = begins[place], ends[place]
            while open_ends and open_ends[-1] <= begin and open_ends[-1] < end:
                open_ends.pop()
            fits = not open_ends or open_ends[-1] >= end
            (kept if fits else rest).append(place)
            if fits:
                open_ends.append(end)
        yield kept
        places = rest


def test_each_slice_is_in_the_first_lane_in_which_it_nests():
    for seed in range(200):
        rng = random.Random(seed)
        longest = rng.choice([3, 10, 100])
        begins = [rng.randint(0, longest) for _ in range(rng.randint(0, 40))]
        ends = [begin + rng.choice([0, 0, 1, rng.randint(0, longest)]) for begin in begins]
        places = sorted(range(len(begins)), key=lambda place: (begins[place], -ends[place]))
        found = nested_lanes(begins, ends, places)
        assert found == list(one_lane_after_the_other(begins, ends, places)), seed
