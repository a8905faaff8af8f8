"""
Metrics of a profile as typed attributes, so that type checkers find misspelt names.

`docs/generate_properties.py` writes this module from the registry.
"""

from __future__ import annotations

__tracebackhide__ = True


class MetricProperties:
    """Attributes for all built-in metrics; each raises `UnknownMetric` if its metric is unknown."""

    __slots__ = ()

    def _number(self, metric: str) -> float:
        """Return the number of a metric; `Profile` implements it."""
        raise NotImplementedError

    def _count(self, metric: str) -> int:
        """Return the number of a metric that counts something; `Profile` implements it."""
        raise NotImplementedError

    @property
    def step_time(self) -> float:
        """Time of a step: median over blocks of block time ÷ steps (s)."""
        return self._number("step_time")

    @property
    def step_time_p90(self) -> float:
        """90th percentile of the single steps (s)."""
        return self._number("step_time_p90")

    @property
    def step_time_p99(self) -> float:
        """99th percentile of 300 single steps or more (s)."""
        return self._number("step_time_p99")

    @property
    def first_step_time(self) -> float:
        """Time of the first step, which traces and compiles (s)."""
        return self._number("first_step_time")

    @property
    def throughput(self) -> float:
        """Examples per second, gaps between epochs included (1/s)."""
        return self._number("throughput")

    @property
    def epoch_gap(self) -> float:
        """Time from the last step of an epoch to the first of the next (s)."""
        return self._number("epoch_gap")

    @property
    def input_bound(self) -> float:
        """Share of the step period that waits for input with nothing else running (0..1)."""
        return self._number("input_bound")

    @property
    def input_wait(self) -> float:
        """Time a step waits for input, on average (s)."""
        return self._number("input_wait")

    @property
    def input_capacity(self) -> float:
        """Elements per second that the pipeline delivers with nothing else running (1/s)."""
        return self._number("input_capacity")

    @property
    def input_bound_at_target(self) -> float:
        """`input_bound` predicted for steps of target_step_time (0..1)."""
        return self._number("input_bound_at_target")

    @property
    def input_python_stages(self) -> int:
        """Stages of the input pipeline that run Python."""
        return self._count("input_python_stages")

    @property
    def host_overhead(self) -> float:
        """Share of the step period with neither device, TensorFlow nor input active (0..1)."""
        return self._number("host_overhead")

    @property
    def device_busy(self) -> float:
        """Share of the step period in which a device executes (0..1)."""
        return self._number("device_busy")

    @property
    def collective_time(self) -> float:
        """Share of the step period in collectives that nothing hides (0..1)."""
        return self._number("collective_time")

    @property
    def step_skew(self) -> float:
        """Slowest ÷ median over devices or hosts − 1 (ratio)."""
        return self._number("step_skew")

    @property
    def xla_clusters(self) -> int:
        """Distinct XLA executables run in a step."""
        return self._count("xla_clusters")

    @property
    def xla_launches(self) -> int:
        """Executions of XLA executables in a step."""
        return self._count("xla_launches")

    @property
    def xla_compiles(self) -> int:
        """XLA executables compiled in any step after the first."""
        return self._count("xla_compiles")

    @property
    def xla_compile_time(self) -> float:
        """XLA compilation in the first step (s)."""
        return self._number("xla_compile_time")

    @property
    def xla_coverage(self) -> float:
        """Share of the compute nodes that are inside XLA clusters (0..1)."""
        return self._number("xla_coverage")

    @property
    def fusions(self) -> int:
        """Fusion instructions in the executables of a step."""
        return self._count("fusions")

    @property
    def retraces(self) -> int:
        """Traces of functions (tf.function, jax.jit) in any step after the first."""
        return self._count("retraces")

    @property
    def eager_ops(self) -> int:
        """Ops run eagerly in a step."""
        return self._count("eager_ops")

    @property
    def python_calls(self) -> int:
        """Python functions that a step calls in its own thread."""
        return self._count("python_calls")

    @property
    def graph_ops(self) -> int:
        """Ops of the graph after Grappler."""
        return self._count("graph_ops")

    @property
    def graph_reduction(self) -> float:
        """Share of the graph's ops that Grappler removed (0..1)."""
        return self._number("graph_reduction")

    @property
    def padding_overhead(self) -> float:
        """Padded ÷ logical bytes − 1 on a TPU (ratio)."""
        return self._number("padding_overhead")

    @property
    def mxu_padding_overhead(self) -> float:
        """Padded ÷ logical matrix-unit FLOPs − 1 on a TPU (ratio)."""
        return self._number("mxu_padding_overhead")

    @property
    def batch_padding(self) -> float:
        """Share of the batches' elements that are padding (0..1)."""
        return self._number("batch_padding")

    @property
    def op_guide_findings(self) -> int:
        """Rules of the Cloud TPU op guide that the step breaks."""
        return self._count("op_guide_findings")

    @property
    def peak_memory(self) -> float:
        """Memory that a step needs at its peak (bytes)."""
        return self._number("peak_memory")

    @property
    def memory_growth(self) -> float:
        """Bytes that the process holds more after each step, over the timed window (bytes)."""
        return self._number("memory_growth")

    @property
    def half_precision(self) -> float:
        """Share of matmul and convolution FLOPs with 16-bit or narrower operands (0..1)."""
        return self._number("half_precision")

    @property
    def flops(self) -> float:
        """Floating-point operations of a step (FLOP)."""
        return self._number("flops")

    @property
    def flops_utilization(self) -> float:
        """Share of the device's peak FLOP rate that is reached (0..1)."""
        return self._number("flops_utilization")

    @property
    def host_device_copies(self) -> int:
        """Copies between host and device in a step."""
        return self._count("host_device_copies")

    @property
    def host_device_bytes(self) -> float:
        """Bytes copied between host and device in a step (bytes)."""
        return self._number("host_device_bytes")

    @property
    def kernel_launches(self) -> int:
        """GPU kernels launched in a step."""
        return self._count("kernel_launches")

    @property
    def tensor_core_time(self) -> float:
        """Share of the eligible kernel time on tensor cores (0..1)."""
        return self._number("tensor_core_time")
