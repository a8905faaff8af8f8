"""
Simulate a team's week: 20 tests on 5 machine classes, 400 runs of CI, and see what a history finds and when.

    python benchmarks/team_week.py                 # one week, in words
    python benchmarks/team_week.py --weeks 20      # only the totals of 20 weeks

Runs of a class follow each other, and each takes the next commit. Noise of a run is normal, 1 % on four classes and 6 % on the fifth,
the noisy one. Three things are planted, each on every class: test_03 is 12 % slower from a commit on, and mended 60 commits later;
test_07 is 6 % slower from a commit on, and nobody mends it; test_11 gets slower by 0.05 % with each commit. All other verdicts are of
code that did not change.

Decisions are those of `pytest --tfperf-baseline --tfperf-history`: runs that are a regression are not compared with. Changes of level
are those of `tfperf history` at the end of the week.
"""

import argparse
import collections
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

N_TESTS, N_CLASSES, N_RUNS, NOISY = 20, 5, 400, 4
MENDED, LASTING, DRIFTING = "test_03", "test_07", "test_11"
FIRST, LAST, SINCE, DRIFT = 150, 210, 250, 0.0005
TOLERANCE, NOISE, LOUD = 0.05, 0.01, 0.06


def factor(test, commit):
    """Step time ÷ that of the first commit."""
    if test == MENDED:
        return 1.12 if FIRST <= commit < LAST else 1.0
    if test == LASTING:
        return 1.06 if commit >= SINCE else 1.0
    return 1 + DRIFT * commit if test == DRIFTING else 1.0


def week(chance):
    """Yield commit, machine class, test, verdict; and step times of each test and class at the end."""
    from pytest_tfperf.baseline.history import history_of, merge_runs
    from pytest_tfperf.results import Verdict
    from pytest_tfperf.stats.prediction_interval import compare_to_history

    entries, series, verdicts = {}, collections.defaultdict(list), []
    for commit in range(N_RUNS):
        machine = commit % N_CLASSES
        noise = LOUD if machine == NOISY else NOISE
        for test in (f"test_{number:02}" for number in range(N_TESTS)):
            seconds = 0.1 * factor(test, commit) * max(chance.gauss(1, noise), 0.5)
            key, verdict = (machine, test), None
            if key in entries:
                found = compare_to_history(seconds, history_of(entries[key]), TOLERANCE)
                verdict = found.verdict
            if verdict is not Verdict.REGRESSION:
                run = {"step_time": seconds, "commit": f"{commit:04}", "created": f"{commit:04}"}
                merged = merge_runs(entries.get(key), [run], {}, TOLERANCE)
                entries[key] = merged.entry or entries[key]
            series[key].append((commit, seconds))
            verdicts.append((commit, machine, test, verdict))
    return verdicts, series


def first_red(verdicts, test, since, until=N_RUNS):
    """Commits after the planted one until the first run that is red, by machine class; None if it is never."""
    red = {}
    for commit, machine, name, verdict in verdicts:
        if name == test and since <= commit < until and str(verdict) == "Verdict.REGRESSION":
            red.setdefault(machine, commit - since)
    return [red.get(machine) for machine in range(N_CLASSES)]


def is_planted(test, commit):
    if test == MENDED:
        return FIRST <= commit < LAST
    return (test == LASTING and commit >= SINCE) or test == DRIFTING


def false_calls(verdicts):
    """Regressions of code that did not change, of quiet machines and of the noisy one, and the numbers of decisions."""
    counts = collections.Counter()
    for commit, machine, test, verdict in verdicts:
        if not is_planted(test, commit) and verdict is not None:
            counts[machine == NOISY, "all"] += 1
            counts[machine == NOISY, "red"] += str(verdict) == "Verdict.REGRESSION"
    return counts


def levels(series):
    """Changes of level by test and class: commits since which the level is another one."""
    from pytest_tfperf.stats.change_points import change_points

    return {
        (test, machine): [runs[point.index][0] for point in change_points([s for _, s in runs])]
        for (machine, test), runs in series.items()
    }


def near(found, planted):
    return any(abs(one - planted) <= 3 * N_CLASSES for one in found)


def shown(commits):
    return ", ".join("never" if one is None else f"{one}" for one in commits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--weeks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    totals, found = collections.Counter(), collections.Counter()
    for number in range(arguments.weeks):
        verdicts, series = week(random.Random(arguments.seed + number))
        totals += false_calls(verdicts)
        changes = levels(series)
        if arguments.weeks == 1:
            for test, since, until in (
                (MENDED, FIRST, LAST),
                (LASTING, SINCE, N_RUNS),
                (DRIFTING, 0, N_RUNS),
            ):
                print(
                    f"{test}: commits until red, by class: {shown(first_red(verdicts, test, since, until))}"
                )
                print(
                    f"  levels change at {[changes[test, machine] for machine in range(N_CLASSES)]}"
                )
        for machine in range(N_CLASSES - 1):
            for test, place in ((MENDED, FIRST), (MENDED, LAST), (LASTING, SINCE)):
                found[test, place, "found"] += near(changes[test, machine], place)
                found[test, place, "all"] += 1
            red = first_red(verdicts, DRIFTING, 0)[machine]
            found["drift", 0, "found"] += red is not None
            found["drift", 0, "all"] += 1
        still = [
            one for (test, _), one in changes.items() if test not in (MENDED, LASTING, DRIFTING)
        ]
        found["other series", 0, "found"] += sum(bool(one) for one in still)
        found["other series", 0, "all"] += len(still)
    for noisy in (False, True):
        red, every = totals[noisy, "red"], totals[noisy, "all"]
        print(f"{'noisy' if noisy else 'quiet'} machines: {red} of {every:,} decisions falsely red")
    for test, place in sorted({key[:2] for key in found}):
        print(
            f"{test} at {place}: {found[test, place, 'found']} of {found[test, place, 'all']} series"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
