"""
What XProf's Input Pipeline Analyzer says of five slow steps, typed in, beside the remedies that are tried.

    python benchmarks/xprof_advice.py --xprof XPROF/bin/python [NAME ...]    # any Python with the wheel xprof==2.24.2

XProf reads a trace of ten steps, and its sentences on the input are printed. Two sentences can be typed of the steps
with a tf.data pipeline: "increase num_parallel_calls in Dataset map()", and "preprocess the data OFFLINE", which is
`Dataset.save` once and `Dataset.load` from then on. Both take the same turns as the unchanged step and the remedies.
An interval of 99 % stands behind each ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from remedies_found import PLANTED, ByHand, Planted, _read, _work

from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import REMEDIES, try_remedies

AUTOTUNE = tf.data.AUTOTUNE


def _sources(number: Any) -> Any:
    return tf.data.Dataset.range(20).map(lambda one: _read(number + one), AUTOTUNE)


PARALLEL: dict[str, Callable[[], Any]] = {
    "sequential_map_with_python": lambda: tf.data.Dataset.range(320).map(_read, AUTOTUNE).batch(8),
    "sequential_interleave": lambda: (
        tf.data.Dataset.range(64).interleave(_sources, cycle_length=4).batch(8)
    ),
    "expensive_stage": lambda: tf.data.Dataset.range(64).map(_work, AUTOTUNE).batch(8),
}
"""The pipelines of `remedies_found.py` with `num_parallel_calls` typed into each `map()`."""
NAMES = (*PARALLEL, "eager_loop", "lost_jit")
STEPS = 10
SECONDS = 180.0
"""Enough for an interval of each remedy beside other work."""
ASK = """
import json, sys
from xprof.convert import raw_to_tool_data
print(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "input_pipeline_analyzer", {})[0].decode())
"""
TIMES = {
    "enqueue_us": "Enqueuing data",
    "preprocessing_us": "Data preprocessing",
    "advanced_file_read_us": "Reading data from files in advance",
    "demanded_file_read_us": "Reading data from files on demand",
    "unclassified_nonequeue_us": "Other data reading or processing",
}
"""Starts of XProf's five sentences, by the times that they are about."""


def sentences(python: str, call: Call) -> Iterator[str]:
    """Yield XProf's mean step, its verdict, its next step, and the sentence on the largest time."""
    steps = iter(call.data.repeat()) if isinstance(call.data, tf.data.Dataset) else None

    def run(number: int) -> None:
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            (call.step() if steps is None else call.step(next(steps))).numpy()

    for number in range(3):
        run(number)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for number in range(STEPS):
                run(number)
        [trace] = Path(folder).rglob("*.xplane.pb")
        command = [python, "-c", ASK, str(trace)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
    tables = json.loads(done.stdout)
    said: dict[str, str] = {
        name: text for table in tables for name, text in table.get("p", {}).items()
    }
    yield f"mean step {said['steptime_ms_average']} ms"
    yield said["input_conclusion"]
    yield said["summary_nextstep"]
    largest = max(TIMES, key=lambda name: float(said[name]))
    if float(said[largest]):
        cells = (str(row["c"][0]["v"]) for table in tables for row in table.get("rows", ()))
        yield next(text for text in cells if text.startswith(TIMES[largest]))


def typed(name: str, planted: Planted, folder: str) -> Iterator[ByHand]:
    """Yield the changes that XProf's sentence on data preprocessing names; none without data."""
    if name not in PARALLEL:
        return
    slow: Any = planted.slow.data
    slow.save(folder)
    for what, data in (
        ("XProf: num_parallel_calls=tf.data.AUTOTUNE in map()", PARALLEL[name]()),
        ("XProf: the data prepared OFFLINE", tf.data.Dataset.load(folder)),
    ):
        change = ByHand(replace(planted, by_hand=replace(planted.slow, data=data)))
        change.name = what
        yield change


def main() -> None:
    """Print for each slow step what XProf says, and what that and the remedies gave."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("--xprof", help="a Python that has the wheel xprof==2.24.2")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    arguments = parser.parse_args()
    for name in arguments.names:
        planted = PLANTED[name]()
        print(name)
        for sentence in sentences(arguments.xprof, planted.slow) if arguments.xprof else ():
            print(f"    XProf: {sentence}")
        with tempfile.TemporaryDirectory() as folder:
            changes = [*typed(name, planted, folder), *REMEDIES]
            found = try_remedies(planted.slow, SECONDS, remedies=changes)
        unchanged = "no turns" if found.unchanged_s is None else f"{1e3 * found.unchanged_s:.3g} ms"
        print(f"    unchanged step: {unchanged}")
        print("\n".join(f"    {line}" for line in found.lines()), flush=True)


if __name__ == "__main__":
    main()
