"""
Profile the steps of record_gpu.py on a GPU, and keep the truth of the same run beside the report.

    pytest benchmarks/gpu_steps --tfperf-report=run.json

Writes what was measured without a profiler to the file that TFPERF_TRUTH names.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from record_gpu import CASES, WARM_UP, Nothing, device_seconds, measured, of_program, run_steps

SIZE = int(os.environ.get("TFPERF_SIZE", 4096))
NAMES = [name for name in CASES if name not in ("new_shape", "asynchronous")]


@pytest.mark.parametrize("name", NAMES)
def test_case(tf_profile, name):
    case = CASES[name](SIZE)
    run_steps(case, WARM_UP, Nothing)
    truth = {
        "known": case.known,
        "before": measured(case),
        "device_s": device_seconds(case.device) if case.device else None,
        "program": of_program(case.program()) if case.program else None,
    }
    if case.fetch:
        found = tf_profile(lambda _: case.step(0), (case.fetch() or i for i in itertools.count()))
    else:
        found = tf_profile(lambda: case.step(0))
    truth["after"] = measured(case)
    write(name, truth, found)


def test_new_shapes(tf_profile):
    """Each call has a shape of its own."""
    step = jax.jit(lambda x: x @ x.T)
    found = tf_profile(step, [jax.numpy.ones((n, 64)) for n in range(1, 60)])
    write("new_shapes", {}, found)


def write(name, truth, found):
    values = {metric: found.value(metric) for metric in found.metrics}
    texts = {
        metric: [
            getattr(value, "number", None),
            getattr(value, "why", None),
            str(getattr(value, "detail", ""))[:600],
        ]
        for metric, value in values.items()
    }
    with Path(os.environ.get("TFPERF_TRUTH", os.devnull)).open("a") as out:
        out.write(json.dumps({"case": name, "truth": truth, "values": texts}, default=str) + "\n")
