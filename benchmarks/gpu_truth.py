"""
Print what the analysis finds in the traces of an H200, beside what was measured without a profiler.

    python benchmarks/gpu_truth.py
"""

import json
from pathlib import Path
from statistics import fmean

from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.trace.xspace import read_trace

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "gpu_h200"
COLUMNS = (
    "case",
    "step, by the clock",
    "found",
    "device busy, by CUDA events",
    "found",
    "FLOPs, by hand",
    "found",
    "kernels",
    "tensor cores",
    "of peak",
)


def row(path):
    """Return the cells of one case."""
    name = path.name.partition(".")[0]
    truth = json.loads((FOLDER / f"{name}.json").read_text())
    profile = analyse_trace(read_trace(path)).profile
    period_s = fmean(step.period_s for step in profile.steps)
    known, device_s = truth["known"], truth["device_s"]
    flops = profile.value("flops")
    if "flops_of_products" in known:
        by_hand, found = known["flops_of_products"], flops.detail["matmul_and_convolution"]
    else:
        by_hand, found = known.get("flops"), flops.number
    return (
        name,
        f"{truth['traced']['total_s'] / len(profile.steps) * 1e3:.3f} ms",
        f"{period_s * 1e3:.3f} ms",
        f"{device_s / period_s:.3f}" if device_s else "–",
        f"{profile.device_busy:.3f}",
        f"{by_hand:,}" if by_hand else "–",
        "UNKNOWN" if found is None else f"{found:,.0f}",
        f"{profile.kernel_launches:.0f}",
        *(shown(profile.value(metric)) for metric in ("tensor_core_time", "flops_utilization")),
    )


def shown(value):
    return "–" if value.number is None else f"{value.number * 100:.0f} %"


def main():
    print("|", " | ".join(COLUMNS), "|")
    print("|", "---|" * len(COLUMNS))
    for path in sorted(FOLDER.glob("*.xplane.pb.gz")):
        if path.with_name(path.name.replace(".xplane.pb.gz", ".json")).exists():
            print("|", " | ".join(row(path)), "|")


if __name__ == "__main__":
    main()
