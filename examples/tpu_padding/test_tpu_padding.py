"""Limits on the memory that a TPU's tiles would waste, without a TPU."""

import pytest
from speech import batches, training_step

AS_IT_IS = {"batch": 100, "channels": 20, "vocabulary": 30_522}
SUGGESTED = {"batch": 128, "channels": 24, "vocabulary": 30_592}


@pytest.fixture
def profiled(tf_profile):
    """Profile the training step at given sizes."""

    def profile(batch, channels, vocabulary, **options):
        data = list(batches(batch, vocabulary))
        return tf_profile(
            training_step(channels, vocabulary),
            data,
            unpack=True,
            warmup=2,
            steps=2,
            trace_steps=2,
            **options,
        )

    return profile


@pytest.mark.tfperf(min_padding_overhead="25%")
def test_the_sizes_waste_a_quarter_and_more(profiled):
    """The profile names the arrays, their lines, and sizes that fill their tiles."""
    profile = profiled(**AS_IT_IS)
    worst, *_ = profile.tables["padding"].records()
    assert worst["shape"] == "f32[100,32,32,20]"
    assert worst["padded"] == "f32[128,32,32,24]{0,3,2,1:T(8,128)}"
    assert worst["line"].startswith("speech.py:")
    assert worst["try"].startswith("100 → 128, 20 → 24: saves ")


@pytest.mark.tfperf(max_padding_overhead="2%", tpu="v5e")
def test_the_suggested_sizes_waste_next_to_nothing(profiled):
    """The limit holds for the upper bound, so for any layout of a TPU compiler."""
    profiled(**SUGGESTED)


@pytest.mark.tfperf(tpu="v5e")
def test_the_suggested_sizes_waste_less_than_a_tenth(profiled):
    before, after = profiled(**AS_IT_IS, name="as it is"), profiled(**SUGGESTED, name="suggested")
    assert after.value("padding_overhead").high() < before.value("padding_overhead").low() / 10
