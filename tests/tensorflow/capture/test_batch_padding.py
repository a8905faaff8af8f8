"""Padding in batches of real pipelines and loops; lengths of 3 to 100, 142 elements in all."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.tables import cells
from tensorflow.python.distribute.values import PerReplica
from tensorflow.python.framework import op_callbacks

from pytest_tfperf.capture.input_data import batches_seen, elements_to_keep
from pytest_tfperf.capture.keras_data import KerasCall, sample_again
from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.metrics.batch_padding import batch_padding
from pytest_tfperf.recording import Recording

LENGTHS = [3, 5, 7, 9, 100, 4, 6, 8]
ROWS = [np.arange(1, n + 1) for n in LENGTHS]


def sequences(dtype=tf.int64):
    return tf.data.Dataset.from_tensor_slices(tf.constant(LENGTHS, tf.int64)).map(
        lambda n: tf.cast(tf.range(1, n + 1), dtype)
    )


def length(row):
    return tf.shape(row)[0]


def measured(elements, data=None, sampled=False):
    """The value and the table's records of these elements."""
    batches = batches_seen(list(elements), data, sampled)
    value, tables = batch_padding(Recording(name="", trace=None, workload={}, batches=batches))
    return value, tables["batch_padding"].records() if tables else []


def test_padding_of_pipelines_is_counted():
    fours = sequences().padded_batch(4)
    for what, data, share in (
        ("batches of four", fours, 0.674312),
        ("a fixed length", sequences().padded_batch(4, padded_shapes=[128]), 0.861328),
        ("buckets", sequences().bucket_by_sequence_length(length, [10], [4, 4]), 0.1125),
        ("batches of three", sequences().padded_batch(3), 0.578635),
        # zeros at the ends, as no dtype tells
        ("another dtype", fours.map(lambda row: tf.cast(row, tf.int32)), 0.674312),
        ("-1", sequences().padded_batch(4, padding_values=tf.constant(-1, tf.int64)), 0.674312),
        ("floats", sequences(tf.float32).padded_batch(4), 0.674312),
        ("texts", sequences().map(tf.strings.as_string).padded_batch(4), 0.674312),
        (
            "vectors",
            sequences().map(lambda row: tf.ones([tf.size(row), 3])).padded_batch(4),
            0.674312,
        ),
        ("ragged", sequences().ragged_batch(4), 0.0),
        (
            "ragged before",
            sequences().ragged_batch(4).map(lambda row: row.to_tensor()),
            0.674312,
        ),
    ):
        value, _ = measured(data, data)
        assert value.number == pytest.approx(share, abs=1e-6), what


def test_labels_do_not_count_as_rows_in_any_structure():
    data = sequences().map(lambda row: (row, tf.constant([0], tf.int64))).padded_batch(4)
    for elements in (data, data.map(lambda row, label: {"x": row, "y": label, "z": label[:, 0]})):
        value, rows = measured(elements, elements)
        assert len(rows) == 1
        assert value.number == pytest.approx(0.674312, abs=1e-6)


def test_each_component_has_its_own_padding_value_in_any_order_of_the_keys():
    pads = {"tokens": tf.constant(0, tf.int64), "labels": tf.constant(-100, tf.int64)}
    for keys in (("tokens", "labels"), ("labels", "tokens")):
        rows = sequences().map(lambda row, keys=keys: dict.fromkeys(keys, row))
        data = rows.padded_batch(4, padding_values={key: pads[key] for key in keys})
        value, found = measured(data, data)
        assert value.number == pytest.approx(0.674312, abs=1e-6), keys
        assert [row["padding"] for row in found] == [value.number] * 2, keys
        # which value is of which component is unknown behind this; zeros at the ends are seen
        moved = data.map(lambda batch: (batch["tokens"], batch["labels"]))
        value, found = measured(moved, moved)
        assert value.number == pytest.approx(0.674312, abs=1e-6), keys
        assert len(found) == 1, keys


def test_ragged_batch_shows_its_dense_size():
    value, rows = measured(sequences().ragged_batch(4))
    assert value.detail["if_dense"] == pytest.approx(0.674312, abs=1e-6)
    assert "stays ragged in 2 batches" in value.detail["where"]
    keys = ("real_elements", "elements", "padding")
    assert tuple(rows[0][key] for key in keys) == (142, 142, 0.0)


def test_nested_ragged_rows_count_their_elements():
    value, rows = measured([tf.ragged.constant([[[1, 2], [3]], [[4]], []])])
    assert value.detail["if_dense"] == pytest.approx(1 - 4 / 12)  # 3 rows of 2 of 2
    assert rows[0]["real_elements"] == 4


def test_suggested_buckets_show_their_remaining_padding():
    data = sequences().repeat(8).padded_batch(4)
    value, _ = measured(data, data)
    assert len(value.detail["boundaries"]) == 5  # two of the six buckets have rows of two lengths
    assert value.detail["bucketed"] == pytest.approx(16 / (8 * 142 + 16))
    assert "1.39 % padding instead of 67.4 %" in value.detail["try"]
    assert value.detail["sorted"] == 0.0
    assert "2 lengths of rows" in value.detail["where"]


def test_pipeline_with_suggested_buckets_has_the_predicted_padding():
    lengths = np.random.default_rng(3).lognormal(3, 0.8, 320).astype(int) + 1
    rows = tf.data.Dataset.from_tensor_slices(lengths).map(lambda n: tf.range(1, n + 1))
    value, _ = measured(rows.padded_batch(16))
    boundaries = value.detail["boundaries"]
    better, _ = measured(
        rows.bucket_by_sequence_length(length, boundaries, [16] * (len(boundaries) + 1))
    )
    assert better.number == pytest.approx(value.detail["bucketed"])
    assert better.number < 0.6 * value.number


def test_a_fixed_length_beyond_all_rows_is_named():
    data = sequences().padded_batch(4, padded_shapes=[128])
    value, _ = measured(data, data)
    assert value.detail["try"].startswith(
        "pad to 100, the longest row seen, not to 128: 82.2 % padding instead of 86.1 %"
    )


def padded(rows, width, value=0, dtype=np.int64):
    return np.stack(
        [np.pad(row, (0, width - len(row)), constant_values=value) for row in rows]
    ).astype(dtype)


TOKENS = padded([[5, 0, 7], [8], [3, 2]], 5)
MASK = padded([[1, 1, 1], [1], [1, 1]], 5)
WORDS = padded([np.arange(1, n + 1) for n in range(1, 11)], 12)  # 55 of 120 are real
CASES = {
    "zeros at the ends of rows": (WORDS, 55),
    "rows that begin with zeros": (WORDS[:, ::-1], 55),
    "lengths win": ({"ids": TOKENS, "length": np.array([4, 2, 2])}, 8),
    "a mask wins": ({"ids": np.zeros_like(TOKENS), "attention_mask": MASK}, 6),
    "a boolean mask": ({"x": np.ones((3, 5, 2), "float32"), "mask": MASK > 0}, 12),
    "the mask before the lengths": (
        {"ids": TOKENS, "length": np.array([5, 5, 5]), "mask": MASK},
        6,
    ),
    "two masks": (
        {"ids": TOKENS, "mask": MASK, "decoder_ids": TOKENS, "decoder_mask": np.ones_like(MASK)},
        6 + 15,
    ),
    "flags at positions are no mask": (
        {"ids": WORDS, "special_mask": np.array([[1, 0, 1, 0, 0] + [0] * 7] * 10)},
        55,
    ),
    "the mask of an image": (
        {
            "ids": WORDS,
            "image": np.ones((10, 4, 4, 3), "uint8"),
            "mask": np.triu(np.ones((10, 4, 4))),
        },
        55,
    ),
    "a padding mask of several axes": (
        {"x": np.ones((1, 2, 3, 2)), "padding_mask": np.array([[[1, 1, 0], [1, 0, 0]]])},
        6,
    ),
    "named in a tuple": (({"ids": TOKENS, "mask": MASK}, np.array([0, 1, 0])), 6),
    "a whole row of padding": (np.concatenate([WORDS, np.zeros((1, 12), int)]), 55),
    "rows without any element are left out": ((WORDS, np.zeros((10, 0), int)), 55),
}


def test_padding_is_recognised():
    for name, (element, real) in CASES.items():
        _, rows = measured([element])
        assert sum(row["real_elements"] for row in rows) == real, name


RNG = np.random.default_rng(0)
NOTHING = {
    "zeros between values": TOKENS,
    "few rows": padded([[5, 6], [8], [3, 2]], 5),
    "the same rows again": np.tile(padded([[5, 6], [8], [3, 2, 1]], 4), (100, 1)),
    "no zeros": np.array([[1, 2], [3, 4]]),
    "one length": padded([[1, 2], [3, 4]] * 50, 9),
    "a flag in the last column": np.stack([RNG.integers(1, 9, 320), RNG.integers(0, 2, 320)], 1),
    "positions": np.tile(np.arange(12), (320, 1)),
    "running counts": RNG.integers(0, 2, (320, 12)).cumsum(axis=1),
    "counts in descending order": np.sort(RNG.poisson(2, (320, 12)), axis=1)[:, ::-1],
    "images": np.zeros((4, 8, 8, 3), "uint8"),
    "features": np.zeros((4, 8), "float32"),
    "flags": np.eye(4, dtype=int),
    "counts": np.array([[0, 0, 2, 0, 0, 0, 1, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0, 4]]),
    "strings": tf.constant([["a", "b", ""]]),
    "objects": {"a": object(), "b": None, "c": [1, "two", []]},
    "none": None,
    "scalars": (3, tf.constant(4), np.int64(5)),
    "sparse": tf.sparse.from_dense(TOKENS),
    "no rows": np.zeros((0, 5), int),
    "no columns": {"ids": np.zeros((3, 0), int), "mask": np.zeros((3, 0), int)},
    "ragged without rows": tf.ragged.constant([], ragged_rank=1, dtype=tf.int32),
    "a long list": list(range(1000)),
    "lengths alone": {"length": np.array([1, 2])},
    "lengths that do not fit": {"x": np.ones((2, 3), "float32"), "length": np.array([1, 7])},
}


def test_unrecognisable_padding_is_unknown():
    for name, element in NOTHING.items():
        value, rows = measured([element])
        assert (value.number, rows) == (None, []), name
        assert "no component of the batches shows padding" in value.why, name


def test_small_integers_are_no_padding_and_padded_ones_are():
    rng = np.random.default_rng(1)
    for _ in range(100):
        n_rows, width, n_values = rng.integers(1, 65), rng.integers(2, 9), rng.integers(2, 40)
        # each column with a distribution of its own, some without any zero
        odds = rng.dirichlet(np.full(n_values, 0.3), width)
        odds[:, 0] *= rng.integers(0, 2, width)
        columns = [rng.choice(n_values, (4, n_rows), p=one / one.sum()) for one in odds]
        batches = list(np.stack(columns, axis=2))
        assert measured(batches)[1] == [], batches
        lengths = rng.integers(0, 20, (4, 32))
        rows = [[rng.integers(1, n_values + 1, n) for n in of_batch] for of_batch in lengths]
        sequences = [padded(batch, 20) for batch in rows]
        value, _ = measured(sequences)
        assert value.number == pytest.approx(1 - lengths.sum() / (4 * 32 * 20)), sequences


def test_elements_that_cannot_be_read_are_unknown():
    class Broken(dict):
        def items(self):
            raise RuntimeError("mine")

    value, _ = measured([Broken(a=1)])
    assert value.why == "the batches could not be read: RuntimeError: mine"
    assert measured([])[0].why == "no batch was traced"


def test_parts_of_replicas_count_as_batches():
    distributed = PerReplica((WORDS, WORDS[:, :10]))
    value, rows = measured([distributed])
    assert value.detail["n_batches"] == 2
    assert (rows[0]["real_elements"], rows[0]["elements"]) == (110, 220)


def test_few_large_elements_are_kept():
    for mebibytes, kept in {0: 20, 1: 20, 16: 4, 48: 1, 100: 1}.items():
        large = np.broadcast_to(np.uint8(0), (mebibytes << 20,))
        element = {"a": large, "b": tf.constant("x"), "c": None}
        assert elements_to_keep(element) == kept, mebibytes


@tf.function(reduce_retracing=True)
def step(tokens):
    return tf.reduce_sum(tokens)


def test_padding_of_a_called_step_is_measured(profile):
    result = profile(step, sequences().padded_batch(4), limits={"max_batch_padding": 0.7})
    assert result.batch_padding == pytest.approx(0.674312, abs=1e-6)
    value = result.value("batch_padding")
    assert (value.detail["sampled"], value.detail["n_batches"]) == (
        False,
        6,
    )  # those of the traced window
    assert cells(result.tables["batch_padding"], "component", "type")[0] == ("element", "int64")


def test_padding_of_the_users_own_loop_is_measured(profile):
    for tokens in profile.steps(WORDS for _ in range(100)):
        step(tokens)
    assert profile.profile.batch_padding == pytest.approx(65 / 120)


def embedding():
    model = keras.Sequential(
        [
            keras.layers.Embedding(200, 2),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


@pytest.mark.imports("keras")
def test_data_of_a_keras_loop_are_sampled_again(profile):
    data = sequences().padded_batch(4).map(lambda row: (row, tf.ones([4, 1]))).repeat(30)
    result = profile.fit(embedding(), data, shuffle=False, verbose=0)
    value = result.value("batch_padding")
    assert value.number == pytest.approx(0.674312, abs=1e-6)
    assert (value.detail["sampled"], value.detail["n_batches"]) == (True, 20)
    assert "20 batches taken from the same data after the steps" in value.detail["where"]


@pytest.mark.imports("keras")
def test_arrays_of_a_keras_loop_are_sliced_as_in_keras(profile):
    tokens = np.tile(padded(ROWS, 128), (20, 1))
    result = profile.predict(embedding(), tokens, batch_size=4, verbose=0)
    assert result.batch_padding == pytest.approx(0.861328, abs=1e-6)
    assert result.value("batch_padding").detail["n_batches"] == 20


@pytest.mark.full
def test_pydataset_is_indexed_again(profile):
    class Rows(keras.utils.PyDataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return {"ids": WORDS}, np.ones((10, 1))

    inputs = keras.Input((12,), dtype="int64", name="ids")
    model = keras.Model(
        {"ids": inputs},
        keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(11, 2)(inputs))),
    )
    model.compile("sgd", "mse")
    padding = profile.fit(model, Rows(), epochs=2, verbose=0).batch_padding
    assert padding == pytest.approx(65 / 120)


def call_of(function, *args, **kwargs):
    return KerasCall(bound=function, model=None, method="fit", args=args, kwargs=kwargs)


@pytest.mark.imports("keras")
def test_data_that_fail_when_sampled_again_do_not_fail_the_test():
    class Broken(keras.utils.PyDataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            raise OSError("mine")

    elements = sample_again(call_of(lambda x: None, Broken()))
    assert elements.why == "the data could not be sampled again: OSError: mine"


def test_data_that_can_be_iterated_once_are_not_sampled_again():
    for data in ((TOKENS for _ in range(3)), iter(sequences().batch(1)), iter([TOKENS])):
        elements = sample_again(call_of(lambda x=None: None, data))
        assert "a generator or another iterator, and a sample would use it up" in elements.why


def test_callbacks_of_ops_do_not_see_a_sample():
    seen = []

    def seeing(op_type, *_, **__):
        seen.append(op_type)

    data = sequences().padded_batch(4)
    op_callbacks.add_op_callback(seeing)
    try:
        assert sample_again(call_of(lambda x=None: None, data)).kept
    finally:
        op_callbacks.remove_op_callback(seeing)
    assert seen == []


def test_data_that_are_not_arrays_are_not_sampled_again():
    class Loader:  # as PyTorch's DataLoader
        def __len__(self):
            return 3

        def __iter__(self):
            return iter([TOKENS] * 3)

    for data in (None, 3, object(), [1, [2]], {"a": 2}, Loader()):
        elements = sample_again(call_of(lambda *args, **kwargs: None, x=data))
        said = f"does not know how to sample the loop's data again: {type(data).__qualname__}"
        assert said in elements.why, data


@pytest.mark.imports("keras")
def test_a_pydataset_may_tell_its_batches_by_num_batches_or_have_no_end():
    class Rows(keras.utils.PyDataset):
        def __getitem__(self, index):
            return np.ones((3, 5)), np.ones((3, 1))

    class Counted(Rows):
        num_batches = 2

    class Endless(Rows):
        num_batches = None

    for made, n in ((Counted(), 2), (Endless(), 20)):
        elements = sample_again(call_of(lambda *args, **kwargs: None, made))
        assert (elements.why, len(elements.kept)) == (None, n)


def test_the_sample_ends_after_a_second(monkeypatch):
    seconds = iter(np.arange(0, 100, 0.25))
    monkeypatch.setattr("pytest_tfperf.capture.keras_data.perf_counter", lambda: next(seconds))

    def loop(x, batch_size=None):
        return None

    elements = sample_again(call_of(loop, [TOKENS, TOKENS], batch_size=1))
    assert len(elements.kept) == 3
    data = sequences().repeat().padded_batch(2)
    elements = sample_again(call_of(loop, data, batch_size=None))
    assert len(elements.kept) == 5


@pytest.mark.full
def test_images_of_a_keras_loop_are_not_sampled_again(profile):
    begun = []

    def draw():
        begun.append(1)
        for _ in range(2000):  # more than all windows take, since Keras warns when data end
            yield np.ones((2, 3), "float32"), np.ones((2, 1), "float32")

    spec = (tf.TensorSpec((2, 3)), tf.TensorSpec((2, 1)))
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    result = profile.fit(
        model, tf.data.Dataset.from_generator(draw, output_signature=spec), verbose=0, shuffle=False
    )
    assert "no component of the batches shows padding" in result.value("batch_padding").why
    assert begun == [1]


@pytest.mark.full
def test_a_generator_is_not_used_up(profile):
    given = []

    def batches():
        for n in range(200):
            given.append(n)
            yield TOKENS, np.ones((3, 1))

    result = profile.fit(
        embedding(), batches(), steps_per_epoch=40, epochs=2, shuffle=False, verbose=0
    )
    with pytest.raises(UnknownMetric, match="would use it up"):
        result.batch_padding  # noqa: B018
    assert len(given) <= 90
