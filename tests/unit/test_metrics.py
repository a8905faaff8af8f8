"""The registry of metrics against a table typed a second time."""

from pytest_tfperf.metric_registry import METRICS, nearest

# name, unit, better, scope
TABLE = """
step_time              s      lower   machine
step_cpu_time          s      lower   machine
other_load             0..1   lower   machine
step_time_p90          s      lower   machine
step_time_p99          s      lower   machine
first_step_time        s      lower   machine
throughput             1/s    higher  machine
epoch_gap              s      lower   machine
input_bound            0..1   lower   machine
input_wait             s      lower   machine
input_capacity         1/s    higher  machine
input_bound_at_target  0..1   lower   machine
input_python_stages    count  lower   program
host_overhead          0..1   lower   machine
device_busy            0..1   higher  machine
device_time            s      lower   machine
collective_time        0..1   lower   machine
step_skew              ratio  lower   machine
xla_clusters           count  -       platform
xla_launches           count  lower   platform
xla_compiles           count  lower   program
xla_compile_time       s      lower   machine
xla_coverage           0..1   higher  platform
fusions                count  -       platform
retraces               count  lower   program
eager_ops              count  lower   program
python_calls           count  lower   platform
graph_ops              count  lower   platform
graph_reduction        0..1   higher  platform
padding_overhead       ratio  lower   program
mxu_padding_overhead   ratio  lower   program
batch_padding          0..1   lower   program
op_guide_findings      count  lower   program
peak_memory            bytes  lower   platform
memory_growth          bytes  lower   machine
half_precision         0..1   higher  program
flops                  FLOP   -       program
flops_utilization      0..1   higher  machine
host_device_copies     count  lower   platform
host_device_bytes      bytes  lower   platform
kernel_launches        count  lower   platform
tensor_core_time       0..1   higher  machine
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_each_row_of_the_design_is_registered():
    for name, unit, better, scope in ROWS:
        metric = METRICS[name]
        assert (metric.unit, metric.better or "-", metric.scope) == (unit, better, scope), (
            name,
            unit,
            better,
        )


def test_nothing_else_is_registered_and_the_order_is_the_design_s():
    assert list(METRICS) == [row[0] for row in ROWS]


def test_every_metric_has_its_key_as_name_and_a_meaning():
    assert all(metric.name == name and metric.meaning for name, metric in METRICS.items())


def test_nearest_proposes_and_lists_in_order():
    assert (
        nearest("step_tim", ["step_time", "flops"])
        == "did you mean 'step_time'? valid: flops, step_time"
    )


def test_nearest_proposes_nothing_where_nothing_is_near():
    assert nearest("zzz", iter(["step_time", "flops"])) == "valid: flops, step_time"


def test_nearest_lists_many_names_only_where_none_is_near():
    names = [f"name_{n:02}" for n in range(50)]
    assert nearest("nam_01", names) == "did you mean 'name_01'?"
    assert nearest("zzz", names).endswith("name_19, and 30 more")
