"""
The Cloud TPU op guide as rules: patterns in a step's HLO, their costs and rewrites.

After https://cloud.google.com/tpu/docs/performance-guide and
https://cloud.google.com/tpu/docs/tensorflow-ops, in our own words. The HLO is that before
optimisation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from pytest_tfperf.graphs import GraphOp
from pytest_tfperf.hlo.module import HloModule, source_line
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.op_types import NO_KERNEL, PYTHON, TEXT
from pytest_tfperf.text import and_more
from pytest_tfperf.tpu import compute_rules as compute
from pytest_tfperf.tpu import layout_rules as layout
from pytest_tfperf.tpu.bodies import Body, Found, bodies_of, kind, named
from pytest_tfperf.tpu.layout_rules import transposes
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

ON, INFO, OFF, SUPPRESSED = "on", "info", "off", "suppressed"
ALL = "all"
_OTHER_REPLICA = re.compile(r"(^|/)replica_[1-9]\d*/")
"""Names of ops of later replicas: tensorflow/python/distribute/mirrored_run.py."""
_DROPPED = frozenset({"Assert"})  # XLA drops them (tensorflow/compiler/tf2xla/kernels/assert_op.cc)
METRIC, TABLE = "op_guide_findings", "op_guide"
_SHOWN = 3
_NOT_SEEN = "no step was run for the graphs"
_RANK = {ON: 0, INFO: 1, SUPPRESSED: 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the op guide."""

    code: str
    """Code of the rule, such as TRANSPOSE."""
    level: str
    """`on` findings are counted, `info` findings are shown, `off` ones only on request."""
    find: Callable[[Body], Found]
    """Yields an instruction of each op that breaks the rule, with a description."""
    _: KW_ONLY
    detects: str
    """The pattern, for the reader."""
    why: str
    """The cost of the pattern."""
    rewrite: str
    """The better pattern."""
    example: str
    """Code that breaks the rule."""
    in_loop: str = ""
    """Level of a finding in a loop, if it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An op that breaks a rule."""

    code: str
    level: str
    """On or info."""
    op: str
    op_type: str
    line: str | None
    """The user's source line, if known."""
    what: str
    """Description of this occurrence."""
    why: str
    rewrite: str


_ROWS = (
    Rule(
        "TRANSPOSE",
        ON,
        transposes,
        detects=(
            "a transpose that moves dimensions longer than one and that no neighbouring product"
            " absorbs. A matrix product absorbs an exchange of its last two dimensions. A"
            " convolution absorbs one of batch and features, or of a kernel's input and output"
            " features. An einsum absorbs any order"
        ),
        why="it copies the whole array and changes its padding",
        rewrite=(
            "move this transpose next to the matrix product or convolution that absorbs it, name"
            " the order in an einsum, or remove it"
        ),
        example="tf.transpose(x, (0, 2, 1)) + 1.0",
    ),
    Rule(
        "PADDED_MOVE",
        INFO,
        layout.padded_moves,
        detects=(
            "a slice, split, concatenation or pad along one of the two padded dimensions, at sizes"
            " that are not multiples of 128 (the last) or 8 (the second-last); beside a convolution"
            " features and batch are the padded dimensions"
        ),
        why="it moves data within padded rows, element by element",
        rewrite=(
            "slice, concatenate or pad along a leading dimension, or make these sizes multiples of"
            " 128 in the last and 8 in the second-last dimension"
        ),
        example="tf.concat([x[:, :100], y], axis=1)",
    ),
    Rule(
        "PADDED_RESHAPE",
        INFO,
        layout.padded_reshapes,
        detects=(
            "a reshape of 1024 elements or more that changes the last dimension, or that merges or"
            " splits the second-last one at a size that is not a multiple of 8"
        ),
        why="it splits or merges padded rows, which copies the whole array",
        rewrite=(
            "keep the last dimension and merge only leading ones; if the host feeds a heavily"
            " padded array, feed it as rank 1 and reshape it on the device: padding is then not"
            " transferred"
        ),
        example="tf.reshape(x, (-1, 12, 64))  # of [..., 768]",
    ),
    Rule(
        "SPACE_BATCH",
        ON,
        layout.space_batch,
        detects=(
            "SpaceToBatchND, BatchToSpaceND, SpaceToDepth and DepthToSpace; tf.nn.convolution and"
            " Keras' Conv2D with a dilation emit the first two"
        ),
        why="it moves data between padded and other dimensions",
        rewrite=(
            "do it in the input pipeline; for a dilated convolution call tf.nn.conv2d(x, kernel, 1,"
            " padding, dilations=rate) directly"
        ),
        example="tf.nn.space_to_depth(images, 2)",
    ),
    Rule(
        "UNFUSED_BN",
        OFF,
        compute.unfused_batch_norms,
        detects=(
            "a reciprocal square root of a variance plus a number, if the variance is a mean over"
            " all dimensions but the last, or a moving one; every BatchNormalization of Keras 3"
            " consists of such ops"
        ),
        why="statistics and scaling read the array several times",
        rewrite="use tf.compat.v1.nn.fused_batch_norm in layers of your own",
        example="(x - mean) * tf.math.rsqrt(variance + 1e-3)",
    ),
    Rule(
        "MAXPOOL_GRAD",
        INFO,
        compute.max_pool_gradients,
        detects="the gradient of a max pooling",
        why="it searches each window for its largest element again, and scatters",
        rewrite=(
            "if accuracy allows, use average pooling, whose gradient is cheaper; this changes the"
            " model"
        ),
        example="tape.gradient(tf.nn.max_pool2d(x, 2, 2, 'SAME'), x)",
    ),
    Rule(
        "CATEGORICAL",
        INFO,
        compute.categorical,
        in_loop=ON,
        detects=(
            "tf.random.categorical and stateless_categorical; the level is on if they run in a loop"
            " within the step"
        ),
        why="categorical sampling is expensive",
        rewrite=(
            "draw uniform noise u and take tf.argmax(logits - tf.math.log(-tf.math.log(u)), -1),"
            " which has the same distribution, or sample less often"
        ),
        example="tf.random.categorical(logits, 1)",
    ),
    Rule(
        "REDUCE_THEN_MUL",
        INFO,
        compute.reduced_then_multiplied,
        detects="a sum whose only consumer is a product with one number",
        why="the product cannot fuse into the ops before the sum",
        rewrite=(
            "multiply first: the sum of x * y instead of the sum of x, times y; they are equal"
            " except for rounding, since y is one number"
        ),
        example="tf.reduce_sum(x, 1) * 0.5",
    ),
    Rule(
        "SEQ_REDUCTION",
        OFF,
        compute.reductions_in_turn,
        detects=(
            "a reduction whose operand depends on another reduction of the same shape over the same"
            " axes: layer normalisation, moments, a softmax by hand"
        ),
        why="the array is read twice, the second time only after the first",
        rewrite=(
            "if numerics allow, use independent reductions, such as the means of x and x²; their"
            " difference is less exact than a variance in two passes"
        ),
        example="tf.reduce_mean((x - tf.reduce_mean(x, -1, keepdims=True)) ** 2, -1)",
    ),
    Rule(
        "NO_TPU_KERNEL",
        ON,
        compute.not_on_tpus,
        detects=(
            "an op without an XLA kernel, or one that handles text (the last one of a line);"
            " an op that is not in the public list of Cloud TPU ops"
            f" ({compute.TPU_OPS_DATE}: {', '.join(sorted(compute.NOT_ON_TPUS))})"
        ),
        why="this op cannot run on a TPU: it splits the step, moves to the host, or fails",
        rewrite=(
            "move it into the input pipeline or behind the step, or replace it with ops that a TPU"
            " supports"
        ),
        example="tf.numpy_function(f, [x], tf.float32)",
    ),
    Rule(
        "NORMAL_SAMPLING",
        INFO,
        compute.normal_sampling,
        detects="samples from a normal or truncated normal distribution in the step",
        why="they cost a little more than uniform samples",
        rewrite="use uniform noise if the distribution does not matter",
        example="x + tf.random.normal(tf.shape(x))",
    ),
    Rule(
        "UNFUSED_EPILOGUE",
        INFO,
        layout.unfused_epilogues,
        detects=(
            "a bias or an activation that a transpose or reshape of the kinds above separates from"
            " its matrix product or convolution"
        ),
        why="it cannot fuse into the product's output, and reads and writes the array once more",
        rewrite="apply bias and activation directly to the product, and move data after them",
        example="tf.nn.relu(tf.transpose(tf.nn.conv2d(x, kernel, 1, 'SAME'), (0, 3, 1, 2)))",
    ),
)


RULES: dict[str, Rule] = {rule.code: rule for rule in _ROWS}


def parse_codes(value: object) -> tuple[str, ...]:
    """Read one or several codes of rules; one that does not exist raises ValueError."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple, set)) or not all(
        isinstance(name, str) for name in names
    ):
        raise ValueError(f"{value!r} is not a name or a list of names")
    for name in names:
        if name not in RULES:
            raise ValueError(f"no finding {name!r}; {nearest(name, RULES)}")
    return tuple(names)


def findings(modules: Iterable[HloModule], outside: Iterable[GraphOp] = ()) -> list[Finding]:
    """
    List all findings of a step, of any level, by rule and then by position in the program.

    If tf.distribute runs the step on several devices, only the first replica counts, so that the
    number is the same on every machine.
    """
    every = [body for module in modules for body in bodies_of(module)]
    found = []
    for rule in _ROWS:
        for body in every:
            level = (rule.in_loop if body.in_loop else "") or rule.level
            found += [
                _finding(rule, level, named(op), kind(op), source_line(op), what)
                for op, what in rule.find(body)
            ]
        if rule.code == "NO_TPU_KERNEL":
            found += [
                _finding(rule, rule.level, op.name, op.op_type, op.line, op.why)
                for op in _without_kernel(outside)
            ]
    return [one for one in found if not _OTHER_REPLICA.search(one.op)]


def _without_kernel(outside: Iterable[GraphOp]) -> Iterable[GraphOp]:
    """
    Return the ops of the graph that XLA has no kernel for, the last of each line and scope.

    So the text that tf.print prints is part of its finding.
    """
    return {
        (op.line, op.name.rpartition("/")[0]) if op.line else (op.name,): op
        for op in outside
        if op.why in (TEXT, PYTHON, NO_KERNEL) and op.op_type not in _DROPPED
    }.values()


def _finding(rule: Rule, level: str, op: str, op_type: str, line: str | None, what: str) -> Finding:
    return Finding(
        code=rule.code,
        level=level,
        op=op,
        op_type=op_type,
        line=line,
        what=what,
        why=rule.why,
        rewrite=rule.rewrite,
    )


def shown_findings(
    found: Iterable[Finding], counted: Collection[str] = (), ignored: Collection[str] = ()
) -> list[Finding]:
    """
    Return the findings to show, those that count first.

    `counted` names codes that count as well, "all" every code. `ignored` suppresses codes in any
    case.
    """
    leveled = [replace(one, level=_level(one, counted, ignored)) for one in found]
    return sorted((one for one in leveled if one.level != OFF), key=lambda one: _RANK[one.level])


def value(found: Sequence[Finding], unseen: Unknown | None = None, n_ops: int = 0) -> Value:
    """
    Return op_guide_findings: the number of findings that count.

    `unseen` is why other rules are not checked, which each of `n_ops` ops may break. The number is
    unknown then without a finding.
    """
    counted = [one for one in found if one.level == ON]
    if unseen is not None and not counted:
        return Value.unknown(METRIC, unseen.why or _NOT_SEEN)
    detail = {"where": _where(counted), "try": counted[0].rewrite} if counted else {}
    n = len(counted)
    bounds = {} if unseen is None else {"low": n, "high": n + n_ops, "bounds": unseen.why}
    return Value.of(METRIC, n, Source.GRAPH, **bounds, **detail)


def table(found: Sequence[Finding]) -> dict[str, Table]:
    """Return the table of all findings that are shown, by its key; empty if there are none."""
    if not found:
        return {}
    made = Table.of_each(
        "op guide",
        found,
        [
            (Column("code", "code"), lambda one: one.code),
            (Column("level", "level"), lambda one: one.level),
            (Column("op", "op"), lambda one: one.op),
            (Column("type", "type"), lambda one: one.op_type),
            (Column("line", "line"), lambda one: one.line),
            (Column("what", "what"), lambda one: one.what),
            (Column("why", "why"), lambda one: one.why),
            (Column("rewrite", "rewrite"), lambda one: one.rewrite),
        ],
    )
    return {TABLE: made}


def notes(found: Sequence[Finding], ignored: Collection[str]) -> tuple[str, ...]:
    """Return a note on suppressed codes that the step does not break."""
    idle = sorted(set(ignored) - {one.code for one in found if one.level == SUPPRESSED})
    return (
        (f"ignore_findings names {', '.join(idle)}, and the step has no such finding",)
        if idle
        else ()
    )


def _level(one: Finding, wanted: Collection[str], ignored: Collection[str]) -> str:
    if one.code in ignored:
        return SUPPRESSED
    return ON if one.code in wanted or ALL in wanted else one.level


def _where(counted: Sequence[Finding]) -> str:
    shown = [f"{one.code} at {one.line or one.op}: {one.op_type}, {one.what}" for one in counted]
    return and_more(shown, _SHOWN, "; ")
