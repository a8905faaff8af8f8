"""
Measure what clock and processor time decide on a busy machine, by recorded runs of seven steps.

    python benchmarks/busy_machine.py record DATA.jsonl.gz 24
    python benchmarks/busy_machine.py replay DATA.jsonl.gz

`record` adds so many fresh processes. Beside each run 0 to 4 busy processes that come and go at random; of those, so
many is drawn for each process. It times each step with the usual amount of work, and with 1.15 to 3 times as much, with
the plugin's own timed window. Nothing else should run meanwhile: it would be counted as other load too.

`replay` records five or ten drawn runs one after the other, as `--tfperf-update` does, and compares another run with
them, and a further one as the confirming second process, as `--tfperf-baseline` does. All runs of one comparison are of
different processes. Drawn comparisons overlap, so the trials that count are the processes.
"""

import argparse
import collections
import contextlib
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pytest_tfperf.baseline.compare import stored_times, time_check
from pytest_tfperf.baseline.history import cores_of, merge_runs, rounded
from pytest_tfperf.baseline.step_time import TimingFiles
from pytest_tfperf.machine.description import describe
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile, Verdict
from pytest_tfperf.values import Source, Value

UNITS, WORK = 20, (1.0, 1.15, 1.3, 1.6, 2.0, 3.0)
MOST_BURNERS = 4
TIMES = ("step_time", "step_cpu_time", "other_load")
TOLERANCE = 0.05
BURNER = """
import random, time
while True:
    end = time.monotonic() + random.uniform(0.3, 3)
    while time.monotonic() < end:
        pass
    time.sleep(random.uniform(0, 1))
"""


def matmuls(units):
    import tensorflow as tf

    x = tf.random.normal((200, 200))

    @tf.function
    def step():
        y = x
        for _ in range(units):
            y = tf.linalg.matmul(y, x) * 1e-3
        return y

    return step


def xla(units):
    import tensorflow as tf

    x = tf.random.normal((128, 128))

    @tf.function(jit_compile=True)
    def step():
        y = x
        for _ in range(units):
            y = tf.sin(tf.linalg.matmul(y, x))
        return y

    return step


def model_of(layers, shape):
    import keras

    model = keras.Sequential(
        [keras.Input(shape), *layers, keras.layers.Flatten(), keras.layers.Dense(4)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    return model


def convolutions(units):
    import keras
    import numpy as np

    model = model_of([keras.layers.Conv2D(8, 3, padding="same") for _ in range(units)], (10, 10, 8))
    x, y = np.ones((16, 10, 10, 8), "float32"), np.ones((16, 4), "float32")
    return lambda: model.train_on_batch(x, y)


def dense(units):
    import keras
    import numpy as np

    model = model_of([keras.layers.Dense(128) for _ in range(units)], (128,))
    x, y = np.ones((128, 128), "float32"), np.ones((128, 4), "float32")
    return lambda: model.train_on_batch(x, y)


def jax_large(units):
    return jax_step(300, units)


def jax_small(units):
    return jax_step(64, units)


def jax_step(size, units):
    import jax
    import jax.numpy as jnp

    x = jnp.ones((size, size)) / size
    run = jax.jit(lambda x: jax.lax.fori_loop(0, units // 4, lambda _, y: jnp.sin(y @ x), x))
    return lambda: run(x)


def pipeline(units):
    import tensorflow as tf

    def load(n):
        y = tf.fill((64, 64), tf.cast(n, tf.float32))
        for _ in range(units):
            y = tf.sin(y)
        return y

    data = tf.data.Dataset.range(10**9).map(load, num_parallel_calls=tf.data.AUTOTUNE)
    batches = iter(data.batch(8).prefetch(tf.data.AUTOTUNE))
    return lambda: next(batches)


STEPS = (matmuls, xla, convolutions, dense, jax_large, jax_small, pipeline)


def timed(step):
    """The values of one timed window, and the processor time of a step in each of its blocks."""
    from pytest_tfperf.capture.blocks import BlockTimer, garbage_held_off
    from pytest_tfperf.capture.observations import Observations
    from pytest_tfperf.capture.plan import Plan
    from pytest_tfperf.frameworks.in_use import synchronise
    from pytest_tfperf.metrics.timing import timed_values

    for _ in range(12):
        out = step()
    synchronise(out)
    began = time.perf_counter()
    for _ in range(3):
        out = step()
    synchronise(out)
    seen, period_s = Observations(), (time.perf_counter() - began) / 3
    with garbage_held_off() as collect, seen.interference.watched():
        window = BlockTimer(Plan(max_seconds=6)).timed_window(seen, 15, period_s, collect)
        for _ in window:
            step()
    recording = Recording(
        name="",
        trace=None,
        workload={},
        blocks=tuple(seen.blocks),
        block_cpu_s=seen.block_cpu_s,
        step_seconds=tuple(seen.step_seconds),
        other_load=seen.interference.other_load,
    )
    values = timed_values(recording, None)
    blocks = [cpu / n for cpu, (_, n) in zip(seen.block_cpu_s, seen.blocks, strict=True)]
    return {
        name: rounded(values[name].number) for name in TIMES if values[name].number is not None
    }, blocks


def child():
    for make in random.sample(STEPS, len(STEPS)):
        for work in random.sample(WORK, len(WORK)):
            run, blocks = timed(make(round(UNITS * work)))
            shown = {
                "step": make.__name__,
                "work": work,
                "run": run,
                "blocks": list(map(rounded, blocks)),
            }
            print(json.dumps(shown), flush=True)


@contextlib.contextmanager
def burning(n):
    """Keep so many processes busy, which come and go at random."""
    burners = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(n)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def record(path, n):
    machine = describe(())["machine"]
    for _ in range(n):
        n_burners = random.randint(0, MOST_BURNERS)
        with burning(n_burners):
            done = subprocess.run(
                [sys.executable, __file__, "child"],
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
        of_process = {"process": random.getrandbits(48), "burners": n_burners, "machine": machine}
        lines = (
            json.dumps({**of_process, **json.loads(line)}) for line in done.stdout.splitlines()
        )
        with gzip.open(path, "at", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        print(n_burners, "busy processes:", len(done.stdout.splitlines()), "runs", flush=True)


def profile_of(run):
    values = {name: Value.unknown(name, "it is no measure here") for name in TIMES}
    for name, number in run.items():
        detail = {"settled": True} if name == "step_time" else {}
        values[name] = Value.of(name, number, Source.TIMED, **detail)
    return Profile(name="", metrics=values, workload={}, notes=(), steps=())


def entry_of(runs, cores):
    entry = None
    for second, run in enumerate(runs):
        new = {**run, "commit": "", "created": f"2026-01-01T00:00:{second:02}+00:00"}
        entry = merge_runs(entry, [new], {}, TOLERANCE, cores).entry
    return entry


def judged(entry, run, cores):
    """The deciding time, its verdict, and the smallest change that each time would show."""
    profile = profile_of(run)
    times = stored_times(entry, profile, cores, TimingFiles.words)
    found = time_check(profile, times, None, None, "")
    return found.metric, found.verdict, found.detail.get("smallest")


def compared(entry, first, second, cores):
    """The time by which a regression is found and confirmed, or None."""
    metric, verdict, _ = judged(entry, first, cores)
    if verdict is not Verdict.REGRESSION:
        return None
    return metric if judged(entry, second, cores)[1] is Verdict.REGRESSION else None


def smallest(entry, run, cores):
    """The smallest change that clock and processor time would show, None where it is unknown."""
    from pytest_tfperf.stats.prediction_interval import compare_to_history

    profile = profile_of(run)
    times = stored_times(entry, profile, cores, TimingFiles.words)
    clock = compare_to_history(run["step_time"], times.clock.history, TOLERANCE, times.least)
    cpu = None
    if "step_cpu_time" in run and times.steady[0].history.runs:
        now = run["step_cpu_time"]
        cpu = compare_to_history(
            now, times.steady[0].history, TOLERANCE, now / times.steady[0].moved
        )
    return clock.minimum_detectable_change, cpu and cpu.minimum_detectable_change


def longer(run, factor):
    """A run whose step took so many times its times."""
    return {**run, **{name: run[name] * factor for name in TIMES[:2] if name in run}}


def is_found_as_said(entry, one, two, cores):
    """Whether a slow-down as large as the smaller one that a run would show is found."""
    shown = [change for change in smallest(entry, one, cores) if change is not None]
    if not shown:
        return None
    one, two = (longer(run, 1 + min(shown)) for run in (one, two))
    return compared(entry, one, two, cores) is not None


def replay(path, draws):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    cores = cores_of(rows[0]["machine"])
    runs = collections.defaultdict(dict)
    for row in rows:
        runs[row["step"], row["work"]][row["process"]] = row["run"]
    processes = sorted({row["process"] for row in rows})
    print(f"{len(processes)} processes, {cores} cores, tolerance {TOLERANCE:.0%}")
    random.seed(1)

    def drawn(step, work, n):
        """Stored runs, a new one and a second one, all of different processes."""
        *stored, one, two = random.sample(processes, n + 2)
        entry = entry_of([runs[step, 1.0][process] for process in stored], cores)
        return entry, runs[step, work][one], runs[step, work][two]

    for step in STEPS:
        show_step(step.__name__, drawn, draws, cores, runs)


def show_step(name, drawn, draws, cores, runs):
    of_step = [
        run
        for (step, work), by in runs.items()
        if (step, work) == (name, 1.0)
        for run in by.values()
    ]
    spread = {
        time: [run[time] for run in of_step if time in run]
        for time in ("step_time", "step_cpu_time")
    }
    shown = ", ".join(
        f"{time} {1e3 * min(of):.3g} to {1e3 * max(of):.3g} ms ({len(of)} known)"
        for time, of in spread.items()
        if of
    )
    print(f"\n{name}: {shown}")
    false = collections.Counter(compared(*drawn(name, 1.0, 5), cores) for _ in range(draws))
    print(f"  same code, five stored runs: {regressions(false)} of {draws} REGRESSION")
    first = collections.Counter(compared(*drawn(name, 3.0, 1), cores) for _ in range(draws))
    thrice = collections.Counter(
        compared(entry, longer(one, 3.0), longer(two, 3.0), cores)
        for entry, one, two in (drawn(name, 1.0, 1) for _ in range(draws))
    )
    more = [
        run["step_cpu_time"] / runs[name, 1.0][process]["step_cpu_time"]
        for process, run in runs[name, 3.0].items()
        if "step_cpu_time" in run and "step_cpu_time" in runs[name, 1.0][process]
    ]
    print(
        f"  3 times the work ({statistics.median(more):.2g} times the processor time), one stored run: "
        f"{draws - first[None]} of {draws} found; 3 times both times: {draws - thrice[None]}"
    )
    for n in (5, 10):
        clocks, cpus, hits = [], [], {work: collections.Counter() for work in WORK[1:]}
        claims = collections.Counter()
        for work in WORK[1:-1]:
            for _ in range(draws):
                entry, one, two = drawn(name, work, n)
                hits[work][compared(entry, one, two, cores)] += 1
                clock, cpu = smallest(entry, one, cores)
                clocks += [clock] if clock is not None else []
                cpus += [cpu] if cpu is not None else []
                entry, one, two = drawn(name, 1.0, n)
                claims[is_found_as_said(entry, one, two, cores)] += 1
        found = ", ".join(
            f"{work:g}x: {hits[work]['step_time']}+{hits[work]['step_cpu_time']}"
            for work in WORK[1:-1]
        )
        says = [f"{statistics.median(of):.0%}" if of else "-" for of in (clocks, cpus)]
        print(f"  {n} stored runs: would show {says[0]} by the clock, {says[1]} by processor time;")
        said = claims[True] + claims[False]
        print(f"    found of {draws}, by the clock + by processor time: {found};")
        print(
            f"    made longer by the smaller of what they would show: {claims[True]} of {said} found"
        )


def regressions(counts):
    return f"{counts['step_time']} by the clock and {counts['step_cpu_time']} by processor time"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("record", "replay", "child"))
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument(
        "number",
        nargs="?",
        type=int,
        default=60,
        help="processes to record, or comparisons to draw",
    )
    options = parser.parse_args()
    if options.command == "child":
        child()
    elif options.command == "record":
        record(options.path, options.number)
    else:
        replay(options.path, options.number)


if __name__ == "__main__":
    main()
