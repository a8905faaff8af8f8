"""
Hold the changes of level of `tfperf history` against those of Apache Otava, on 20 planted series.

    python3 -m venv build/otava && build/otava/bin/pip install apache-otava
    python benchmarks/otava.py build/otava/bin/otava

Otava pins another NumPy, so it has an environment of its own. It reads what `tfperf history --csv otava` writes. Each series has 90
runs with normal noise of 1 to 3 %, and no, one or two changes of 4 to 15 %. A change is found if it is reported within three runs of
its place. It prints a table, and the exit status is 1 if Otava cannot read the file.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

N_SERIES, N_RUNS, NEAR = 20, 90, 3


def planted(chance):
    """The values of a series, and the places of its changes."""
    places = sorted(chance.sample(range(15, N_RUNS - 15), chance.randrange(3)))
    if len(places) == 2 and places[1] - places[0] < 15:
        places = places[:1]
    noise, level, values = chance.uniform(0.01, 0.03), 0.1, []
    for n in range(N_RUNS):
        if n in places:
            level *= 1 + chance.choice((-1, 1)) * chance.uniform(0.04, 0.15)
        values.append(level * chance.gauss(1, noise))
    return values, places


def history_csv(folder, series):
    """The CSV file of a history with these series."""
    from helpers.builders import profile, record_of
    from helpers.histories import run_at, store_of

    from pytest_tfperf.run_history.opening import open_store

    store = open_store(f"{folder}/store")
    for n in range(N_RUNS):
        tests = [
            record_of(profile(step_time=values[n]), key=f"test_{number:02}")
            for number, (values, _) in enumerate(series)
        ]
        store_of(run_at(n, commit=f"{n:012x}", day=1 + n // 4, tests=tests), store=store)
    command = [sys.executable, "-m", "pytest_tfperf.cli.main", "history", "--csv", "otava"]
    options = ["--store", f"{folder}/store", "--project", "demo"]
    environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
    done = subprocess.run(
        [*command, *options], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return done.stdout


def found_by_otava(otava, folder, text):
    """Places of Otava's changes by series."""
    folder = Path(folder)
    (folder / "runs.csv").write_text(text, "utf-8")
    names = text.splitlines()[0].split(",")[2:]
    metrics = "".join(f"      {name}: {{direction: -1, column: {name}}}\n" for name in names)
    (folder / "otava.yaml").write_text(
        f"tests:\n  demo:\n    type: csv\n    file: {folder / 'runs.csv'}\n    time_column: time\n"
        f"    attributes: [commit]\n    metrics:\n{metrics}",
        "utf-8",
    )
    command = [otava, "analyze", "demo", "--since=2025-01-01", "--output=json"]
    environment = {**os.environ, "OTAVA_CONFIG": str(folder / "otava.yaml")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    rows = text.splitlines()[1:]
    place = {int(row.split(",")[0]): n for n, row in enumerate(rows)}
    found = {name: [] for name in names}
    for change in json.loads(re.search(r"\{.*\}", done.stdout, re.DOTALL)[0])["demo"]:
        for one in change["changes"]:
            found[one["metric"]].append(place[int(change["time"])])
    return found


def score(found, places):
    """Numbers of planted changes that are found, and of other changes."""
    right = sum(any(abs(one - place) <= NEAR for one in found) for place in places)
    others = [one for one in found if all(abs(one - place) > NEAR for place in places)]
    return right, len(others)


def main():
    from pytest_tfperf.stats.change_points import change_points

    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("otava", help="path of the command otava")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    series = [planted(chance) for _ in range(N_SERIES)]
    with tempfile.TemporaryDirectory(prefix="tfperf-otava-") as folder:
        theirs = found_by_otava(arguments.otava, folder, history_csv(folder, series))
    totals = {"tfperf": [0, 0], "Otava": [0, 0]}
    n_planted = 0
    for (values, places), otava in zip(series, theirs.values(), strict=True):
        own = [point.index for point in change_points(values)]
        print(f"planted {places}, tfperf {own}, Otava {otava}")
        n_planted += len(places)
        for name, found in (("tfperf", own), ("Otava", otava)):
            totals[name] = [a + b for a, b in zip(totals[name], score(found, places), strict=True)]
    for name, (right, others) in totals.items():
        print(f"{name}: {right} of {n_planted} changes found, {others} others")
    return 0


if __name__ == "__main__":
    sys.exit(main())
