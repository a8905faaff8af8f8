"""
Judge the messages of the planted causes of tests/suites/causes.

    python benchmarks/causes.py [CASE …] [--messages]

Each test of a case is one row: the metric that the message is about, `right` or what is wrong, and the share of the time that `where`
accounts for, if the check says it. The last line counts the broken and the fixed forms that are judged right, and the cases of which
all are.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.causes import FOLDER, cases, judged
from tabulate import tabulate


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="names of files, without .py (default: all)"
    )
    parser.add_argument(
        "--messages", action="store_true", help="print the messages that are not right"
    )
    arguments = parser.parse_args()
    paths = [FOLDER / f"{name}.py" for name in arguments.cases] or cases()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            print(f"{path.stem} …", file=sys.stderr)
            rows += judged(path, Path(folder))
    if arguments.messages:
        for row in (row for row in rows if row.wrong):
            print(f"{row.case}::{row.form} {', '.join(row.wrong)}\n{row.message}\n")
    print(tabulate([cells(row) for row in rows], ["case", "form", "metric", "judged", "accounted"]))
    print(summary(rows))


def cells(row):
    accounted = "" if row.accounted is None else f"{100 * row.accounted:.0f} %"
    return row.case, row.form, row.metric, ", ".join(row.wrong) or "right", accounted


def summary(rows):
    counts = []
    for kind in ("broken", "fixed"):
        of_kind = [row for row in rows if row.form.startswith(f"test_{kind}")]
        counts.append(f"{sum(not row.wrong for row in of_kind)} of {len(of_kind)} {kind} forms")
    all_cases = {row.case for row in rows}
    right = all_cases - {row.case for row in rows if row.wrong}
    return f"right: {', '.join(counts)}, {len(right)} of {len(all_cases)} cases as a whole"


if __name__ == "__main__":
    main()
