"""The same steps under pytest-benchmark."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "paired_steps"))

from test_steps import convolution_5ms, convolution_50ms, matmul_0_3ms


@pytest.mark.parametrize("make", [matmul_0_3ms, convolution_5ms, convolution_50ms])
def test_step(benchmark, make):
    step = make()
    for _ in range(10):
        step()
    benchmark(step)
