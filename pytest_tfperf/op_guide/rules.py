"""
The Cloud TPU op guide as rules: patterns in a step's graph, their costs and rewrites.

After https://cloud.google.com/tpu/docs/performance-guide and
https://cloud.google.com/tpu/docs/tensorflow-ops, in our own words. A rule has no findings where
shapes are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from pytest_tfperf.metrics import nearest
from pytest_tfperf.op_guide import compute_rules as compute
from pytest_tfperf.op_guide import layout_rules as layout
from pytest_tfperf.op_guide.graph import Links
from pytest_tfperf.recording import OpGraph, OpNode

ON, INFO, OFF, SUPPRESSED = "on", "info", "off", "suppressed"
ALL = "all"
_OTHER_REPLICA = re.compile(
    r"(^|/)replica_[1-9]\d*/"
)  # tensorflow/python/distribute/mirrored_run.py


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the op guide."""

    code: str
    level: str
    """`on` findings are counted, `info` findings are shown, `off` ones only on request."""
    find: Callable[[Links], layout.Found]
    """Yields the indices of ops that break the rule, each with its description."""
    _: KW_ONLY
    detects: str
    """The pattern, for the reader."""
    why: str
    """The cost of the pattern."""
    rewrite: str
    """The better pattern."""
    example: str
    """Code that breaks the rule."""
    level_of: Callable[[OpNode], str] | None = None
    """Level of a finding, if it differs by op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An op that breaks a rule."""

    code: str
    level: str
    op: str
    """Name of the op."""
    op_type: str
    line: str | None
    """The user's source line, if known."""
    what: str
    """Description of this occurrence."""
    why: str
    """The rule's reason."""
    rewrite: str
    """The rule's rewrite."""


_ROWS = (
    Rule(
        "TRANSPOSE",
        ON,
        layout.transposes,
        detects="a transpose that moves dimensions longer than one, and that no product beside it takes over: a matrix product of its "
        "last two dimensions, a convolution of batch and features, or of a kernel's input and output features, an einsum",
        why="it copies the whole array, between other paddings",
        rewrite="move this transpose next to the matrix product or convolution that takes it, name the order in an einsum, or drop it",
        example="tf.transpose(x, (0, 2, 1)) + 1.0",
    ),
    Rule(
        "PADDED_MOVE",
        INFO,
        layout.padded_moves,
        detects="a slice, split, concatenation or padding along one of the two padded dimensions, at sizes that are no multiples of 128 "
        "(the last) or 8 (the one before); beside a convolution its features and batch are the padded ones",
        why="data move within padded rows, element by element",
        rewrite="slice, concatenate or pad along a leading dimension, or make these sizes multiples of 128 in the last and 8 in the "
        "second-last",
        example="tf.concat([x[:, :100], y], axis=1)",
    ),
    Rule(
        "PADDED_RESHAPE",
        INFO,
        layout.padded_reshapes,
        detects="a reshape of 1024 elements or more that changes the last dimension, or merges or splits the one before at a size that is "
        "no multiple of 8",
        why="it takes padded rows apart, so that the whole array is copied",
        rewrite="keep the last dimension and merge leading ones only; where the host feeds an array that is much padded, feed it as rank "
        "1 and reshape it on the device: the padding is not transferred",
        example="tf.reshape(x, (-1, 12, 64))  # of [..., 768]",
    ),
    Rule(
        "SPACE_BATCH",
        ON,
        layout.space_batch,
        detects="SpaceToBatchND, BatchToSpaceND, SpaceToDepth, DepthToSpace; tf.nn.convolution and Keras' Conv2D with a dilation emit the "
        "first two",
        why="data cross between padded dimensions and others",
        rewrite="do it in the input pipeline; for a dilated convolution call tf.nn.conv2d(x, kernel, 1, padding, dilations=rate) directly",
        example="tf.nn.space_to_depth(images, 2)",
    ),
    Rule(
        "UNFUSED_BN",
        OFF,
        compute.unfused_batch_norms,
        detects="a reciprocal square root of a variance plus a number, where the variance is a mean over all dimensions but the last, or "
        "a moving one; every BatchNormalization of Keras 3 is made of such ops",
        why="statistics and scaling read the array several times",
        rewrite="use tf.compat.v1.nn.fused_batch_norm where you write the layer yourself",
        example="(x - mean) * tf.math.rsqrt(variance + 1e-3)",
    ),
    Rule(
        "MAXPOOL_GRAD",
        INFO,
        compute.max_pool_gradients,
        detects="the gradient of a max pooling",
        why="it looks for each window's largest element again, and scatters",
        rewrite="if accuracy allows, pool by average, whose gradient is cheaper; it is another model",
        example="tape.gradient(tf.nn.max_pool2d(x, 2, 2, 'SAME'), x)",
    ),
    Rule(
        "CATEGORICAL",
        INFO,
        compute.categorical,
        level_of=lambda op: ON if op.in_loop else INFO,
        detects="tf.random.categorical and stateless_categorical; on where they run in a loop within the step",
        why="drawing from categories is dear",
        rewrite="draw uniform noise u and take tf.argmax(logits - tf.math.log(-tf.math.log(u)), -1), which has the same distribution, or "
        "draw less often",
        example="tf.random.categorical(logits, 1)",
    ),
    Rule(
        "REDUCE_THEN_MUL",
        INFO,
        compute.reduced_then_multiplied,
        detects="a sum that only a product takes, whose other factor is one number",
        why="the product cannot fuse into what is summed",
        rewrite="multiply first: tf.reduce_sum(x * y, axis) instead of tf.reduce_sum(x, axis) * y; it is equal but for rounding, since y "
        "is one number",
        example="tf.reduce_sum(x, 1) * 0.5",
    ),
    Rule(
        "SEQ_REDUCTION",
        OFF,
        compute.reductions_in_turn,
        detects="a reduction of what another reduction, of the same shape over the same axes, is part of: layer normalisation, moments, a "
        "softmax by hand",
        why="the array is read twice, the second time only after the first",
        rewrite="if numerics allow, reduce side by side, such as the means of x and x²; the difference of these is less exact than a "
        "variance in two passes",
        example="tf.reduce_mean((x - tf.reduce_mean(x, -1, keepdims=True)) ** 2, -1)",
    ),
    Rule(
        "NO_TPU_KERNEL",
        ON,
        compute.without_kernel,
        detects="an op, or one of a type, that XLA has no kernel for (of several in a row the last); ops that the public list of Cloud "
        f"TPU ops lacks ({compute.TPU_OPS_DATE}: {', '.join(sorted(compute.NOT_ON_TPUS))})",
        why="this op cannot run on a TPU: it splits the step, moves to the host, or fails",
        rewrite="do it in the input pipeline or after the step, or write it with ops that a TPU has",
        example="tf.numpy_function(f, [x], tf.float32)",
    ),
    Rule(
        "NORMAL_SAMPLING",
        INFO,
        compute.normal_sampling,
        detects="draws from a normal or truncated normal distribution in the step",
        why="they cost a little more than uniform ones",
        rewrite="draw uniform noise where the distribution does not matter",
        example="x + tf.random.normal(tf.shape(x))",
    ),
    Rule(
        "UNFUSED_EPILOGUE",
        INFO,
        layout.unfused_epilogues,
        detects="a bias or an activation that a transpose or reshape, of those above, keeps from its matrix product or convolution",
        why="it cannot fuse into the product's output, and reads and writes the array once more",
        rewrite="put bias and activation right behind the product, and move data after them",
        example="tf.nn.relu(tf.transpose(tf.nn.conv2d(x, kernel, 1, 'SAME'), (0, 3, 1, 2)))",
    ),
)
RULES: dict[str, Rule] = {rule.code: rule for rule in _ROWS}


def parse_codes(value: object) -> tuple[str, ...]:
    """
    Read one or several codes of rules.

    Raises:
        ValueError: If a rule does not exist.
    """
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple, set)) or not all(
        isinstance(name, str) for name in names
    ):
        raise ValueError(f"{value!r} is not a name or a list of names")
    for name in names:
        if name not in RULES:
            raise ValueError(f"no finding {name!r}; {nearest(name, RULES)}")
    return tuple(names)


def findings(graph: OpGraph) -> list[Finding]:
    """
    List all findings of a step, of any level, by rule and then by position in the graph.

    If tf.distribute runs the step on several devices, only the first replica counts, so that the
    number is the same on every machine.
    """
    links = Links.of(graph)
    found = (
        (rule, graph.ops[index], what) for rule in _ROWS for index, what in sorted(rule.find(links))
    )
    return [
        _finding(rule, op, what) for rule, op, what in found if not _OTHER_REPLICA.search(op.name)
    ]


def _finding(rule: Rule, op: OpNode, what: str) -> Finding:
    return Finding(
        code=rule.code,
        level=rule.level if rule.level_of is None else rule.level_of(op),
        op=op.name,
        op_type=op.op_type,
        line=op.line,
        what=what,
        why=rule.why,
        rewrite=rule.rewrite,
    )
