"""
Hold step_time against a loop whose Python prepares a step while the device runs the one before it.

    python benchmarks/overlap.py [--rounds 9]

Each step sleeps, as a host that waits for a disk, and calls a function of JAX. Loop and profile take turns in one process; the loop
runs 60 steps and waits once, at its end. It prints the median ratio of each kind of step, and how long one device step takes alone.
"""

import argparse
import os
import statistics
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.plugin.registry import Registry

KINDS = ((0.004, 400), (0.004, 600), (0.010, 900))
"""Seconds of the host, and the size of the matrices."""
LOOP = 60


@jax.jit
def layers(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return x


def seconds_a_step(step, n_steps):
    """Seconds of a step between two moments in which the device is idle."""
    step().block_until_ready()
    start = time.perf_counter()
    for _ in range(n_steps):
        output = step()
    output.block_until_ready()
    return (time.perf_counter() - start) / n_steps


def profiled(step):
    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    found = profiler(step, trace_steps=2)
    profiler.close()
    return found.step_time


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for host_s, size in KINDS:
        w = jnp.ones((size, size)) / size

        def step(host_s=host_s, w=w):
            time.sleep(host_s)
            return layers(w, w)

        alone = seconds_a_step(lambda w=w: layers(w, w), LOOP)
        ratios = []
        for _ in range(rounds):
            before, found, after = (
                seconds_a_step(step, LOOP),
                profiled(step),
                seconds_a_step(step, LOOP),
            )
            ratios.append(2 * found / (before + after))
        print(
            f"host {1e3 * host_s:.0f} ms, device {1e3 * alone:.1f} ms: step_time is "
            f"{statistics.median(ratios):.3f} of the loop's ({min(ratios):.3f} to {max(ratios):.3f}, {rounds} rounds)",
            flush=True,
        )


if __name__ == "__main__":
    main()
