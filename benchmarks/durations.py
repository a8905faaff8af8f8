"""
Sum the seconds of tests by kind, folder and file.

    .venv/bin/pytest -n 2 --dist worksteal --junitxml build/tests.xml
    python benchmarks/durations.py build/tests.xml                     # files of more than 5 s
    python benchmarks/durations.py build/tests.xml build/full.xml --least 0

Seconds are those of setup, call and teardown by the clock, summed over all workers. tests/conftest.py stores the kind of each test; without it
the folder tells.
"""

import argparse
from collections import Counter
from xml.etree import ElementTree

KINDS = {
    "unit": "unit",
    "tensorflow": "TensorFlow in this process",
    "processes": "processes started",
}


def tests_of(path):
    """(kind, folder, file, seconds) of each test of a JUnit file."""
    for case in ElementTree.parse(path).iter("testcase"):
        parts = [part for part in case.get("classname").split(".") if not part[:1].isupper()]
        kind = case.find("properties/property[@name='kind']")
        yield (
            KINDS.get(parts[1], parts[1]) if kind is None else kind.get("value"),
            "/".join(parts[1:3]),
            "/".join(parts[1:]),
            float(case.get("time")),
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="JUNIT_XML")
    parser.add_argument(
        "--least", type=float, default=5, metavar="S", help="of a row, 5 by default"
    )
    arguments = parser.parse_args()
    tests = [test for path in arguments.files for test in tests_of(path)]
    for column, title in enumerate(("kind", "folder", "file")):
        seconds, numbers = Counter(), Counter()
        for test in tests:
            seconds[test[column]] += test[-1]
            numbers[test[column]] += 1
        print(f"| {title} | s | tests |\n|---|---|---|")
        for name, total in seconds.most_common():
            if total >= arguments.least:
                print(f"| {name} | {total:.0f} | {numbers[name]:,} |")
        print()
    print(f"{sum(test[-1] for test in tests):,.0f} s of {len(tests):,} tests")


if __name__ == "__main__":
    main()
