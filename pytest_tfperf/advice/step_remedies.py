"""
Remedies of what takes the time of a step or lies between epochs, by op type, library or callback.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pytest_tfperf.advice.by_framework import LESS_PYTHON, MORE_IN_EACH_CALL, ONE_FUNCTION, text_for
from pytest_tfperf.advice.changes import PARALLEL
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.op_types import LONGEST_OP_S
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import BetweenEpochs, PythonFunction, Recording, StackTime
from pytest_tfperf.text import and_more

_SHOWN = 5
_PARTS = frozenset(
    {"dynamic_slice", "slice", "squeeze", "_squeeze", "gather", "unstack", "divmod"}
    | {"StridedSlice", "Unpack", "GatherV2"}
)
"""Ops of JAX and TensorFlow that take parts of an array, as `x[i]` and `for row in x` do."""
_CONVERTS = frozenset({"convert_element_type", "broadcast_in_dim"})
"""Functions of JAX with which it makes an array of Python's objects."""
_READ, _LEAST_READS = 0.3, 0.1
"""Least share of ops whose results Python reads, and of those whose remedy is told."""
_INDEX_ON_HOST = "copy the whole array once, rows = np.asarray(x), and take its parts with NumPy"
ARRAY_FIRST = "make one NumPy array first: jnp.asarray(np.asarray(rows))"
_ALONE, _BESIDE, _MOST_NAMED = 0.15, 0.1, 3  # of the gap: the largest cause, and others
_ONE_ITER = (
    "repeat() the dataset, before a strategy distributes it, so that one iter() serves all epochs"
)
_VALIDATION = (
    "validate in every n-th epoch (validation_freq=n), on fewer batches (validation_steps=n) or in "
    "larger ones, or make epochs longer (steps_per_epoch=)"
)
_KERAS = {
    "ModelCheckpoint": "save less: save_best_only=True, save_weights_only=True, or save_freq=n "
    "batches, more than an epoch has",
    "BackupAndRestore": "back up less often: save_freq=n batches, more than an epoch has",
    "TensorBoard": "write less: histogram_freq=0 or every n-th epoch, write_images=False, "
    "embeddings_freq=0",
}
"""Remedies of Keras' own callbacks (keras/src/callbacks, as of 3.15)."""
CALLBACK = (
    "run the callback less often: every n batches or at the end of an epoch (save_freq='epoch', "
    "update_freq=n)"
)
FLATTEN_ONCE = (
    "pass a plain list or dict of arrays: take the pytree apart once, outside of the step "
    "(leaves, structure = jax.tree.flatten(tree)), and put it together inside of jax.jit "
    "(jax.tree.unflatten)"
)
LARGER_EXECUTIONS = "larger batches, or steps_per_execution=n in model.compile: one call runs n"
LOOP_IN_FUNCTION = (
    "loop inside one tf.function, over tf.range or a dataset: Python then makes one call for all"
)
NEXT_IN_FUNCTION = "larger batches, or a loop over the dataset inside one tf.function"
OUTSIDE_LAYERS = "loss, metrics or train_step"
"""What ops of a step of Keras are of that no layer and no optimizer made."""
_OUTSIDE = (
    "compute less outside of the layers: fewer metrics or thresholds in compile(metrics=...), or "
    "metrics on validation data alone"
)
IS_COMPARED = re.compile(r"\.__(hash|eq)__$")
COMPARE_LESS = (
    "a static argument, or an object that no framework knows, is hashed and compared in each call: "
    "compute its hash once, or compare by identity, or pass its arrays as ordinary arguments"
)
LAUNCHES = "loop inside one jax.jit function: jax.lax.scan or jax.lax.fori_loop launch it once"
MADE_ANEW = (
    "make the dataset and its iterator once, outside of the step; each predict or evaluate makes "
    "them anew: predict all rows in one call, or call the model itself, model(x)"
)
RUN_EAGERLY = "compile the model with run_eagerly=False and jit_compile='auto'"
WIDE = frozenset({"f64", "float64", "c128", "complex128"})
_NARROW = (
    "compute in float32, which halves the bytes: cast the inputs, and leave jax_enable_x64 off"
)
DENSE = (
    "the optimizer changes the whole table of an embedding in each step, since its sparse gradient "
    "is made dense: an optimizer with sparse or lazy updates (SGD, Adagrad), or a smaller table"
)
_OPTIMIZERS = re.compile(
    r"(?i)(^|/)(adam|adamw|nadam|adamax|rmsprop|lion|ftrl|adadelta|lamb|muon)(_\d+)?(/|$)"
)
_FUSE = "compile the ops into one kernel: jit_compile=True on the tf.function or in model.compile"
_OPS = (
    (
        r"(Eager)?PyFunc|\w*callback\w*",
        "Python runs inside the graph: write it with TensorFlow ops or jax.numpy, or call it in "
        "each n-th step or iteration alone (tf.cond, jax.lax.cond)",
    ),
    (
        r"While|StatelessWhile|Enter|NextIteration",
        "ops on the whole batch (tf.vectorized_map), jit_compile=True, which makes one program of "
        "the loop, or fewer iterations",
    ),
    (
        r"IteratorGetNext\w*|OptionalGetValue|MultiDeviceIteratorGetNext\w*",
        NEXT_IN_FUNCTION,
    ),
    (
        r"MakeIterator|AnonymousIterator|\w*Dataset(V\d)?",
        MADE_ANEW,
    ),
    (
        r"SaveV2|RestoreV2|MergeV2Checkpoints|ShardedFilename|WriteFile",
        "save less often: once an epoch (save_freq='epoch')",
    ),
    (r"Write\w*Summary|\w*Summary\w*", "write summaries once in many steps"),
    (r"Print(V2)?|StringFormat", "print once in many steps, or outside of the step"),
    (
        r"String\w+|(Static)?Regex\w+|\w*Tokeniz\w*|LookupTable\w+|Decode\w+|ParseExample\w*",
        f"do it in the input pipeline: dataset.map(..., {PARALLEL})",
    ),
    (
        r"(Batch)?Svd|SelfAdjointEig\w*|Eig|Qr|Cholesky|LogMatrix\w+|Lu|"
        r"Matrix(Inverse|Solve\w*|TriangularSolve|SquareRoot|Exponential|Logarithm|Determinant)",
        "a decomposition in each step: power iteration, or once in many steps",
    ),
    (
        r"\w*NonMaxSuppression\w*",
        "give it fewer candidates: tf.math.top_k or a least score before it",
    ),
    (
        r"Extract(Image|Volume)Patches",
        "a convolution (tf.nn.conv2d) computes patches and their product in one op",
    ),
    (
        r"Resize\w+|CropAndResize|ImageProjectiveTransform\w*|Adjust\w+|RGBToHSV|HSVToRGB|Encode\w+",
        f"do it in the input pipeline: dataset.map(..., {PARALLEL}), on "
        "smaller images or of 8 bits",
    ),
    (
        r"CTC\w+|SparseSoftmax\w+|SoftmaxCrossEntropy\w*",
        "fewer classes or a loss of some of them (tf.nn.sampled_softmax_loss), or decode once in "
        "many steps",
    ),
    (
        r"Random\w+|StatelessRandom\w+|\w*TruncatedNormal\w*|StatelessMultinomial|Multinomial|"
        r"rng\S*",
        "draw fewer random numbers, or by a cheaper generator (JAX: jax_default_prng_impl='rbg')",
    ),
    (
        r"Concat(V2)?|ConcatenateV2|Pack|concatenate|TensorListConcat\w*",
        "it copies all of its operands: write what is new in place (tf.Variable.scatter_update, "
        "jax .at[].set in a donated array), or join the parts once in many steps",
    ),
    (
        r"Tile|BroadcastTo",
        "let the next op broadcast it: most ops take operands of size 1 in place of copies",
    ),
    (
        r"Sort|TopK(V2)?|Unique\w*|ArgSort|sort|topk|top-k",
        "sort or select less: tf.math.top_k with a small k, on fewer elements, or in the pipeline",
    ),
    (r"Assert|CheckNumerics\w*|VerifyTensorAll\w*", "switch the checks off outside of debugging"),
    (
        r"convolution|dot|dot_general|MatMul|BatchMatMul\w*|_FusedMatMul|Einsum|Conv\w*|_FusedConv\w*|_MklFused\w*|_Mkl\w*|_FusedBatchNorm\w*",
        "it is the arithmetic of the step: smaller layers or fewer elements, or 16-bit types where "
        "the hardware has them",
    ),
    (
        r"Gather\w*|ResourceGather|Scatter\w*|ResourceScatter\w*|UnsortedSegment\w*|SegmentSum\w*",
        "fewer rows, or a table that fits the cache",
    ),
    (
        r"Add(V2|N)?|Sub|Mul|RealDiv|Div\w*|Pow|Square\w*|R?sqrt|Sqrt|Exp|Expm1|Log|Log1p|Tanh|"
        r"Sigmoid|Relu\w*|S?Elu|Gelu|LeakyRelu|Soft(plus|sign)|Neg|Abs|Sign|Maximum|Minimum|"
        r"Select(V2)?|Cast|Sin|Cos|Erf|Reciprocal|Inv|BiasAdd|Sum|Mean|Max|Min|Prod|L2Loss|"
        r"Logical\w+|Greater\w*|Less\w*|Equal|NotEqual|ClipByValue|(Tanh|Sigmoid|Relu|Rsqrt|Sqrt|"
        r"Softplus|Elu|BiasAdd)\w*Grad|_UnaryOpsComposition",
        _FUSE,
    ),
)
ARRAYS = re.compile(r"jax/_src/numpy/array_constructors\.py|jax/_src/dtypes\.py")
"""Functions with which JAX makes arrays of Python's objects."""
_PYTHON = (
    (
        ARRAYS.pattern,
        ARRAY_FIRST,
    ),
    (
        r"keras/src/.*trainer\.py:.*_on_batch",
        "larger batches, or one model.fit for all of them with steps_per_execution=n",
    ),
    (
        r"keras/src/.*trainer\.py:.*(predict|evaluate)",
        MADE_ANEW,
    ),
    (r"keras/src/.*trainer\.py:.*fit", "one fit for all data: each call starts a loop of its own"),
    (r"keras/src/.*trainer\.py:.*(compile|Trainer\.compile)", "call model.compile once"),
    (
        r"flax/nnx",
        "split the module once, outside the loop (nnx.split), and jit a function of its state; or "
        "nnx.cached_partial",
    ),
    (
        r"jax/_src/array\.py|\.numpy$|device_get|_value",
        "read results once in many steps, or after the loop",
    ),
    (
        r"tensorflow/python/data/ops/iterator_ops\.py:OwnedIterator",
        NEXT_IN_FUNCTION,
    ),
    (
        r"tensorflow/python/data/ops/(\w+_op|dataset_ops)\.py:|keras/src/trainers/data_adapters",
        "make the dataset once, outside the step",
    ),
    (r"tensorflow/python/saved_model|keras/src/saving", "save less often: once an epoch"),
    (r"(logging|json|csv|pickle|pprint|copy|subprocess|urllib)\b", "run it once in many steps"),
)
_LIBRARIES_OF_OPS = (
    *("tensorflow/python/ops/", "tensorflow/python/framework/", "tensorflow/python/util/"),
    "tensorflow/python/eager/",
    *("keras/src/ops/", "jax/_src/numpy/", "jax/_src/lax/"),
)
CALL_OF_TENSORFLOW = "tensorflow/python/util/traceback_utils.py"
"""File of the function in which TensorFlow calls ops and tf.functions alike."""
_PARTS_IN_JAX = re.compile(r"jax/_src/array\.py:(ArrayImpl\.)?__(getitem|iter)__")
_EAGER_OF_JAX = "jax/_src/dispatch.py:apply_primitive"
_LEAST, _FEWEST = 0.1, 3
"""Least share of the time, and least samples, of a line that is named."""
_CALL_ALL_ELSE = ("keras/src/.*trainer", r"tensorflow/python/data/ops/(\w+_op|")
"""Start of patterns of functions that call most of the others."""
_LARGE = 0.3
"""Least share of a library's functions whose remedy is told."""


def eager_remedies(
    names: Counter[str], n_steps: int, remedy: str, n_reads: float, makes_arrays: bool = False
) -> str:
    """
    Return the remedies of ops that run eagerly, by what they are for, with `remedy` for the rest.

    `names` are of all steps together, and `n_reads` the arrays that Python reads in one.
    `makes_arrays` says that the step's Python makes arrays of lists above all.
    """
    remedies = Counter[str]()
    for name, number in names.items():
        if name in _PARTS and n_reads >= _READ * names.total() / n_steps:
            remedies[_INDEX_ON_HOST] += number
        elif name in _CONVERTS and makes_arrays:
            remedies[ARRAY_FIRST] += number
        else:
            remedies[remedy] += number
    return "; ".join(
        text for text, n in remedies.most_common() if n >= _LEAST_READS * names.total()
    )


def transfer_remedy(
    puts: Counter[str],
    n_reads: int,
    n_steps: int = 1,
    lines: str = "",
    own: Collection[str] = (),
) -> dict[str, str]:
    """
    Return `where` and `try` for arrays that steps of JAX pass to devices and read back.

    `puts` are by the function whose argument they are, "" for others, and `own` are functions that
    JAX itself compiles. They and `n_reads` are of all steps together.
    """
    n_own = sum(number for name, number in puts.items() if name in own)
    named = {name: f"arguments of {name}" if name else "other arrays put" for name in puts}
    found = Counter({named[name]: number for name, number in puts.items()})
    found[f"read by Python{lines}"] += n_reads
    remedies = Counter({"jax.device_put the arrays before the step": puts.total() - n_own})
    remedies["move the ops outside jax.jit into it, with the numbers that they take"] = n_own
    remedies["read results after the loop, or once in many steps"] = n_reads
    return {
        "where": f"to and from devices: {tally(found, n_steps)}",
        "try": "; ".join(text for text, number in remedies.most_common() if number),
    }


def eager_cause(
    types: Counter[str],
    seen: Iterable[tuple[str, str | None, int]],
    callbacks: Mapping[str, str],
    remedy: str,
    n_steps: int = 1,
) -> dict[str, str]:
    """
    Return `where` and `try` for ops that run eagerly.

    `types` are of all steps together, and `seen` are the ops of one step with the user's lines.
    `callbacks` has the method of a Keras callback in which a line is; `remedy` is of all other ops.
    """
    lines: dict[str, dict[str, None]] = {}
    n_in = Counter[str]()
    for op_type, line, count in seen:
        lines.setdefault(op_type, {}).update({line: None} if line else {})
        n_in[callbacks.get(line or "", "")] += count if line else 0
    n_out = n_in.pop("", 0)
    named = {op: f"{op} at {and_more(list(lines[op]), 3)}" for op in types if lines.get(op)}
    counted = tally({named.get(op, op): number for op, number in types.items()}, n_steps)
    where = f"eager: {counted}"
    methods = and_more([name for name, _ in n_in.most_common()], 3)
    every_n = f"do it every n batches in {methods}, or at the end of the epoch"
    remedies = [(n_out, remedy)] if n_out or not n_in else []
    if n_in:
        where += f"; in the callback {methods}"
        remedies.append((n_in.total(), every_n))
    remedies.sort(key=lambda one: -one[0])
    return {"where": where, "try": "; ".join(text for _, text in remedies)}


def tally(counts: Mapping[str, int], n_steps: int) -> str:
    """Return names with how often each is there in a step, the most frequent first."""
    each = {name: number / n_steps for name, number in Counter(counts).most_common() if number}
    shown = [
        name if number == 1 else f"{name} ×{format_quantity(number, COUNT)}"
        for name, number in each.items()
    ]
    return and_more(shown, _SHOWN)


def gap_cause(recording: Recording, gap_s: float) -> dict[str, Any]:
    """Return `where` and `try` for a median gap, and the share of it that `where` accounts for."""
    if 2 * sum(recording.epoch_iters_s) > sum(recording.epoch_gaps_s):
        seconds = statistics.median(recording.epoch_iters_s)
        return {
            "iter_s": seconds,
            "where": "freeing the iterator of an epoch and iter() of the data take "
            f"{format_quantity(seconds, SECONDS)} of it",
            "try": _ONE_ITER,
        }
    medians = {what: statistics.median(each) for what, each in recording.epoch_work_s.items()}
    ordered = sorted(medians.items(), key=lambda item: -item[1])
    if not ordered or ordered[0][1] < _ALONE * gap_s:
        return {}
    named = [(what, s) for what, s in ordered[:_MOST_NAMED] if s >= _BESIDE * gap_s]
    share = min(sum(seconds for _, seconds in named) / gap_s, 1.0)
    taken = [
        f"{_titled(what)} takes {format_quantity(seconds, SECONDS)}" for what, seconds in named
    ]
    return {
        "accounted": share,
        "where": f"{', '.join(taken)}: {format_quantity(share, SHARE)} of it",
        "try": "; ".join(dict.fromkeys(_remedy(what) for what, _ in named)),
    }


def _titled(what: BetweenEpochs) -> str:
    if not what.callback:
        return "validation"
    return f"Keras callback {what.callback}" + (f" at {what.line}" if what.line else "")


def _remedy(what: BetweenEpochs) -> str:
    if not what.callback:
        return _VALIDATION
    general = (
        f"let the callback {what.callback.partition('.')[0]} work less often, in every n-th epoch, "
        "or let a metric of the model (compile(metrics=...)) compute it in the steps"
    )
    return _KERAS.get(what.kind, general)


def op_remedy(kind: str, scope: str, kinds: Sequence[str], dtype: str = "") -> str:
    """
    Return the remedy of ops that take the time of a step; it is empty if none is known.

    `kind` and `dtype`, which is empty if unknown, are of the op that takes most, and `scope` is the
    layer or optimizer in its name, or the loop's name.
    """
    if dtype in WIDE:
        return _NARROW
    if _OPTIMIZERS.search(scope) and any("Segment" in one for one in kinds):
        return DENSE
    known = next((text for pattern, text in _OPS if re.fullmatch(pattern, kind)), "")
    return _OUTSIDE if scope == OUTSIDE_LAYERS and known in ("", _FUSE) else known


def python_remedy(stacks: Iterable[StackTime]) -> str:
    """Return the remedy of Python that takes the time of a step."""
    first = next(iter(stacks))
    if first.callback:
        return CALLBACK
    if IS_COMPARED.search(first.function):
        return COMPARE_LESS
    for pattern, text in _PYTHON:
        if first.called and re.search(pattern, f"{first.called} {first.function}"):
            return text
    if runs_eagerly(first):
        return ONE_FUNCTION[JAX if first.called.startswith("jax/") else TENSORFLOW]
    return less_often()


def library_remedy(
    functions: Sequence[PythonFunction], weight: Callable[[PythonFunction], float], in_keras: bool
) -> tuple[str, str] | None:
    """
    Return the library that most of its functions are of, and its remedy, if one is known.

    `weight` is what is divided among them. If Keras calls the step, methods of its trainer are not
    the user's call.
    """
    total = sum(map(weight, functions))
    for pattern, text in _PYTHON:
        found = [one for one in functions if re.search(pattern, one.name)]
        if not found or not total or (in_keras and pattern.startswith("keras")):
            continue
        if pattern.startswith(_CALL_ALL_ELSE):
            return min((one.name for one in found), key=len), text
        if sum(map(weight, found)) >= _LARGE * total:
            return max(found, key=weight).name, text
    return None


def overhead_remedy(framework: str, is_function: bool) -> str:
    """Return the remedy of Python around the calls of functions."""
    return text_for(MORE_IN_EACH_CALL if is_function else LESS_PYTHON, framework)


def less_often(function: str = "it") -> str:
    """Return the remedy of Python that no other one is known of."""
    return f"run {function} less often, for a whole batch at once, or outside the step"


def runs_eagerly(place: StackTime) -> bool:
    """Return whether the user's line calls an op of a framework, outside of any function."""
    is_array = ARRAYS.match(place.called)  # makes arrays of Python's objects
    if place.called.startswith(CALL_OF_TENSORFLOW):
        return place.function.startswith(("tensorflow/python/ops/", "tensorflow/python/framework/"))
    is_part = _PARTS_IN_JAX.match(place.called) or place.function.startswith(_EAGER_OF_JAX)
    return bool(place.called.startswith(_LIBRARIES_OF_OPS) or is_part) and not is_array


def op_samples(
    stacks: Iterable[StackTime], n_eager: float, n_calls: float, framework: str
) -> list[StackTime]:
    """
    Return the samples of ops that the user's lines run eagerly.

    Ops of JAX that are compiled functions themselves have no Python of their own. Samples of lines
    that call no Python are theirs if such ops can take that long.
    """
    own = [one for one in stacks if one.line and not one.callback]
    lines_s = sum(one.seconds for one in own if not one.called)
    in_lines = framework == JAX and n_calls <= n_eager and lines_s <= n_eager * LONGEST_OP_S
    eager_only = ("tensorflow/", "keras/") if n_eager and not n_calls else ()
    return [
        one
        for one in own
        if runs_eagerly(one) or (in_lines and not one.called) or one.called.startswith(eager_only)
    ]


def lines_of(samples: Iterable[StackTime]) -> str:
    """Return the user's lines of samples, ` at train.py:7, train.py:9`, the longest time first."""
    seconds, numbers = Counter[str](), Counter[str]()
    for one in samples:
        seconds[one.line] += one.seconds  # type: ignore[assignment]
        numbers[one.line] += one.n
    least_s = _LEAST * seconds.total()
    lines = [
        line
        for line, taken in seconds.most_common()
        if line and numbers[line] >= _FEWEST and taken >= least_s
    ]
    return f" at {and_more(lines, 3)}" if lines else ""
