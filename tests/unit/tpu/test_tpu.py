"""The tiles that each generation of TPUs gives an array."""

from helpers.refusals import refusal

from pytest_tfperf.errors import LimitError
from pytest_tfperf.tpu.tiles import DEFAULT, generation

ROWS = [  # bits, rows of the array, rows of its tile on v3, v5e, v7x
    (32, 1, 2, 1, 1),
    (32, 3, 4, 4, 4),
    (32, 5, 8, 8, 8),
    (32, 9, 8, 8, 8),
    (16, 3, 4, 4, 4),
    (16, 9, 8, 8, 16),
    (16, 1, 4, 2, 2),
    (8, 1, 8, 4, 4),
    (8, 9, 8, 16, 16),
    (8, 17, 8, 32, 32),
    (8, 1000, 8, 32, 32),
    (64, 1, 2, 1, 1),
    (64, 9, 8, 8, 8),
]


def test_rows_of_a_tile_by_generation():
    for bits, rows, *expected in ROWS:
        tiles = [generation(name).tile(bits, (128, rows)) for name in ("v3", "v5e", "v7x")]
        assert tiles == [(tile_rows, 128) for tile_rows in expected], (bits, rows)


def test_an_array_of_one_dimension_has_a_flat_tile():
    for bits, sizes, v3, v5e in [
        (32, (), 256, 128),
        (32, (301,), 512, 512),
        (32, (1000,), 1024, 1024),
        (32, (5000,), 1024, 1024),
        (16, (128,), 512, 256),
        (8, (1,), 1024, 512),
    ]:
        assert [generation(name).tile(bits, sizes) for name in ("v3", "v5e")] == [(v3,), (v5e,)], (
            bits,
            sizes,
        )


def test_all_generations_are_known_by_name():
    widths = {
        name: generation(name).matrix_width
        for name in ("v2", "v3", "v4", DEFAULT, "v5p", "v6e", "v7x")
    }
    assert widths == {
        "v2": 128,
        "v3": 128,
        "v4": 128,
        "v5e": 128,
        "v5p": 128,
        "v6e": 256,
        "v7x": 256,
    }


def test_an_unknown_generation_names_the_nearest():
    for name in ["v5", "V6E", "", "gpu"]:
        said = refusal(LimitError, generation, name)
        assert "not a TPU generation" in said, name
        assert "valid: v2, v3, v4, v5e, v5p, v6e, v7x" in said, name
