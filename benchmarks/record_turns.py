"""
Record the turns of fresh process pairs, for benchmarks/paired.py to replay the decision over.

    python benchmarks/record_turns.py DATA.jsonl [--seconds S] [--busy N] STEP SAME SLOWED [STEP SAME SLOWED ...]

For each step (matmul_0_3ms, convolution_5ms, convolution_50ms, pipeline_20ms) it runs SAME pairs of
processes of the same code, and SLOWED pairs in which one process is slowed down by 5 % (the
pipeline: 10 %), in mixed order. A pair is two new processes, as --tfperf-against starts them: both
at once and pinned to the same cores, of which one stands still while the other runs its turn. With
--busy, so many busy processes come and go at random meanwhile. The script adds to the file, so it
may be stopped and continued.
"""

import argparse
import json
import os
import random
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path

from busy_machine import burning

from pytest_tfperf.frameworks.in_use import named
from pytest_tfperf.machine.cores import pinnable_cores, pinned
from pytest_tfperf.machine.description import describe
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.messages import Task
from pytest_tfperf.turns.paired_test import TurnTime, run_paired_test, run_turns
from pytest_tfperf.turns.pytest_child import PytestRun, start_pytest

SUITE = Path(__file__).parent / "paired_steps"
FILE = "test_steps.py"
PLANTED = {"pipeline_20ms": 0.1}


def pytest_run(label, root, planted, cores):
    return PytestRun(
        label=label,
        task=Task(root=str(root), files=[FILE], argv=sys.argv),
        path=sys.path,
        arguments=["-q", "-p", "tfperf", "-p", "no:cacheprovider"],
        folder=root,
        environment={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PLANTED": str(planted),
            "SHORT": "",
            "PYTHONHASHSEED": "0",
            "PWD": str(root),
        },
        cores=cores,
    )


def one_pair(step, seconds, runs, own_cores, cleanup):
    """
    Return the turns of two fresh processes, the step time of b, and whether b was started first.

    `runs` are those of b and a. Which of them is started first is left to chance, as
    --tfperf-against does.
    """
    b_first = random.random() < 0.5
    time = TurnTime(seconds=seconds, most_s=seconds)
    test, started = f"{FILE}::test_{step}", {}
    try:
        for run in runs if b_first else runs[::-1]:
            started[run.label] = start_pytest(run, cleanup)
        children = started["b"], started["a"]
        for child in children:
            child.await_collected(test)
        with pinned(own_cores):
            paired = run_paired_test(
                *children,
                test,
                (None, None),
                lambda ready: run_turns(*children, ready, time, lambda _: False),
            )
    finally:
        for child in started.values():
            child.kill()
    turns = paired.turns[""]
    continuous = paired.tree_profiles[0].step_time
    return turns, continuous, b_first


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=15, help="of turns, for each pair of processes"
    )
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="busy processes beside")
    parser.add_argument("steps", nargs="+", metavar="STEP SAME SLOWED")
    options = parser.parse_args()
    cores = pinnable_cores()
    names, same, slowed = (
        options.steps[::3],
        map(int, options.steps[1::3]),
        map(int, options.steps[2::3]),
    )
    wanted = [(name, 0.0) for name, n in zip(names, same, strict=True) for _ in range(n)]
    wanted += [
        (name, PLANTED.get(name, 0.05))
        for name, n in zip(names, slowed, strict=True)
        for _ in range(n)
    ]
    random.shuffle(wanted)
    machine = describe(named(["tensorflow"]))["machine"]
    cleanup = Cleanup()
    try:
        copy = Path(shutil.copytree(SUITE, cleanup.folder / "files"))
        for step, planted in wanted:
            runs = (  # b runs the suite where it is, slowed down by `planted`; a runs the copy
                pytest_run("b", SUITE, planted, cores[1:]),
                pytest_run("a", copy, 0.0, cores[1:]),
            )
            with burning(options.busy):
                turns, continuous, b_first = one_pair(
                    step, options.seconds, runs, cores[:1], cleanup
                )
            line = {
                "step": step,
                "planted": planted,
                "pinned": len(cores) > 1,
                "busy": options.busy,
                "b_started_first": b_first,
                "machine": machine,
                "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "cost_s": round(turns.spent_s, 3),
                "continuous_b_s": continuous,
                "turns": [
                    [float(f"{a:.5g}"), float(f"{b:.5g}"), not b_first]
                    for b, a, b_first in turns.pairs
                ],
                "cpu_turns": [[float(f"{a:.5g}"), float(f"{b:.5g}")] for b, a in turns.cpu_pairs],
            }
            with options.data.open("a", encoding="utf-8") as data:
                data.write(json.dumps(line) + "\n")
            print(
                f"{line['when']} {step} {planted:g}: {len(turns.pairs)} pairs of turns", flush=True
            )
    finally:
        cleanup.close()


if __name__ == "__main__":
    main()
