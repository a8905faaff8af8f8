"""Changes of level in words."""

from pytest_tfperf.baseline.level_changes import level_changes, run_name

STEADY = [0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0099]
COMMITS = [f"c{n}" for n in range(12)]


def slowed(times, ratio):
    return [time * ratio for time in times]


def test_a_change_names_its_commit_its_size_and_both_levels():
    found = level_changes([*STEADY, *slowed(STEADY, 1.05)], COMMITS)
    assert [point.index for point in found.points] == [6]
    assert found.texts == ("since commit c6: 5 % slower",)
    (sentence,) = found.sentences
    assert sentence.startswith("Since commit c6: 5 % slower, 10 ms to 10.5 ms (p = 0.00")


def test_each_of_several_changes_has_a_sentence():
    times = [*STEADY, *slowed(STEADY, 1.3), *slowed(STEADY, 0.9)]
    found = level_changes(times, [f"c{n}" for n in range(18)])
    assert found.texts == ("since commit c6: 30 % slower", "since commit c12: 31 % faster")
    assert [sentence[:13] for sentence in found.sentences] == ["Since commit ", "Since commit "]


def test_a_run_without_a_commit_is_named_by_its_place():
    for commits in [[], COMMITS[:6], [*COMMITS[:6], *[""] * 6]]:
        found = level_changes([*STEADY, *slowed(STEADY, 2)], commits)
        assert found.texts == ("since run 7 of 12 (its commit is not known): 2 times slower",), (
            commits
        )


def test_no_change_is_said():
    assert level_changes(STEADY * 2, COMMITS).sentences == ("No change of level in 12 runs.",)


def test_the_runs_that_were_looked_at_are_named_where_there_are_more():
    steady = STEADY * 400
    found = level_changes(steady, ())
    assert found.sentences == ("No change of level in the newest 2,000 of 2,400 runs.",)
    found = level_changes([*slowed(steady, 1.5), *STEADY * 100], ())
    assert ([point.index for point in found.points], found.first) == ([2_400], 1_000)
    assert found.sentences[0] == "Changes of level are those of the newest 2,000 of 3,000 runs."


def test_the_unknown_is_no_change_and_has_a_reason():
    cases = [
        ([], "11 runs show one, and there are 0"),
        (STEADY, "11 runs show one, and there are 6"),
        ([*STEADY * 2, 0.0], "a value is 0 ns"),
        ([*STEADY * 2, -0.01], "a value is -10 ms"),
    ]
    for times, why in cases:
        found = level_changes(times, COMMITS)
        assert (found.points, found.texts) == ((), ()), why
        assert found.sentences == (f"Changes of level are not known: {why}.",), why


def test_runs_are_named_by_their_commits():
    assert run_name(1, ["a", "b"]) == "commit b"
    assert run_name(2, ["a", "b"]) == run_name(0, [""]) == "its commit is not known"


def test_values_of_another_unit_are_more_or_less():
    found = level_changes([*STEADY, *slowed(STEADY, 2)], COMMITS, unit="bytes")
    assert found.texts[0].endswith(": 100 % more")
