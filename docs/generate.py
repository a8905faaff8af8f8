"""Write docs/metrics.md and docs/op_guide.md from the registries."""

from pathlib import Path

from pytest_tfperf.metrics import METRICS, Metric
from pytest_tfperf.op_guide.rules import RULES, Rule

HEAD = """# Metrics

Every row gives the marker arguments `max_<metric>` and `min_<metric>`; a count also `<metric>=`.

*Scope* says where a value holds: *program* on every machine, *platform* for a device kind and TensorFlow version, *machine*
on one class of machines (times). What the numbers mean and where they come from: [analysis.md](analysis.md). Rows marked ° are experimental
on GPUs: they hold on the traces at hand, none of which is of a recent NVIDIA GPU. This page is written by `docs/generate.py` from the
registry.

| metric | unit | better | scope | meaning |
|---|---|---|---|---|
"""


OP_GUIDE_HEAD = """# The TPU op guide as findings

`op_guide_findings` counts where a step breaks the rules of the [Cloud TPU performance
guide](https://cloud.google.com/tpu/docs/performance-guide); no TPU is needed. The rules look at the graphs of the functions that the step
calls, as Python traced them: with what they call, gradients, loops and branches, without what nothing needs.

```python
@pytest.mark.tfperf(
    max_op_guide_findings=0, findings=["PADDED_RESHAPE"], ignore_findings=["SPACE_BATCH"]
)
def test_train_step(tf_profile):
    tf_profile(train_step, dataset)
```
```
FAIL: op_guide_findings was 1, wanted at most 0 (max_op_guide_findings=0)
  where: TRANSPOSE at model.py:31: Transpose, float32[8,32,64] by (0,2,1)
  try: move this transpose next to the matrix product or convolution that takes it, name the order in an einsum, or drop it
```

- *Level*: findings that are **on** count; those of level **info** stand in `profile.tables["op_guide"]` and never count; those
  that are **off** do neither. `findings=` switches codes on besides (`"all"`: every one), `ignore_findings=` suppresses them, which the
  table shows (`suppressed`); a note names codes that were suppressed and never found.
- Each op that breaks a rule is a finding. A function that is called twice in the step's functions is there twice; a function that Python
  calls is looked at once; of replicas that tf.distribute makes the first counts.
- A shape that is not known breaks no rule: of a dataset's elements `batch(…, drop_remainder=True)` makes it known. A step that calls no
  tf.function is UNKNOWN, and so is one of more than 20,000 ops, or of more than 10,000 where no limit on `op_guide_findings` asks for it
  (0.1 ms an op).
- Sizes are compared with tiles of 8 x 128 elements in row-major order, of convolutions' data in the order that [padding.md](padding.md)
  gives. XLA may choose another order, or take a transpose or a reshape out altogether; what a finding costs was not measured on a TPU.

This page is written by `docs/generate.py` from the registry (`pytest_tfperf/op_guide/rules.py`).
"""


ON_GPUS = (
    "device_busy",
    "collective_time",
    "step_skew",
    "flops_utilization",
    "host_device_copies",
    "host_device_bytes",
    "kernel_launches",
    "tensor_core_time",
)


def row(metric: Metric) -> str:
    """One line of the table."""
    mark = "°" if metric.name in ON_GPUS else ""
    return f"| `{metric.name}`{mark} | {metric.unit} | {metric.better or '–'} | {metric.scope} | {metric.meaning} |\n"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(row, METRICS.values()))


def rule(row: Rule) -> str:
    """The section of a rule."""
    level = f"{row.level}{'; on in a loop within the step' if row.level_of else ''}"
    parts = (
        ("Detects", row.detects),
        ("Why", row.why),
        ("Rewrite", row.rewrite),
        ("Example", f"`{row.example}`"),
    )
    return (
        f"\n## {row.code}\n\n*Level*: {level}\n\n"
        + "\n\n".join(f"*{title}*: {text}" for title, text in parts)
        + "\n"
    )


def op_guide_page() -> str:
    """The whole page."""
    return OP_GUIDE_HEAD + "".join(map(rule, RULES.values()))


PAGES = {"metrics.md": page, "op_guide.md": op_guide_page}

if __name__ == "__main__":
    for name, make in PAGES.items():
        Path(__file__).with_name(name).write_text(make(), encoding="utf-8")
