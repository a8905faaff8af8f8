"""
Measure the memory of `tfperf analyze` for a file of several GB that has few events.

    python benchmarks/mapped_trace.py TRACE.xplane.pb --gb 1 3 6

Adds a plane with a stat of zero bytes to a copy of the trace. The bytes are a hole in the file, and take no
disk. It prints time and peak memory (getrusage) for the trace and for each copy: a file below 2 GiB is read, a larger
one is mapped.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from analyze import cost, tfperf
from tabulate import tabulate

from pytest_tfperf.protobuf import text_field, varint


def head(number, size):
    """Return what precedes a length-delimited field."""
    return varint(number << 3 | 2) + varint(size)


def with_hole(trace, out, size):
    """
    Write a copy of a trace with `size` zero bytes at its end.

    XSpace: planes = 1; XPlane: name = 2, stats = 6; XStat: bytes_value = 6.
    """
    stat = head(6, size)
    stats = head(6, len(stat) + size)
    name = text_field(2, "/host:hole")
    shutil.copyfile(trace, out)
    with out.open("r+b") as file:
        file.seek(0, 2)
        file.write(head(1, len(name) + len(stats) + len(stat) + size) + name + stats + stat)
        file.truncate(file.tell() + size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gb", type=float, nargs="+", default=[1, 3, 6], help="sizes of the hole")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for gb in [0, *arguments.gb]:
            path = Path(folder) / "host.xplane.pb"
            with_hole(arguments.trace, path, round(gb * 1e9))
            found = cost(tfperf(path), 1)
            rows.append([path.stat().st_size / 1e9, found.cpu_s, found.peak_mb])
    print(tabulate(rows, ["file GB", "CPU s", "peak MB"], floatfmt=".3g"))


if __name__ == "__main__":
    main()
