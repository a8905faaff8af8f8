"""Layouts and padded bytes, against reference tables and against the placement of each element."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest
from helpers.refusals import refusal
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.layout import (
    COMBINED,
    layout_text,
    leaves,
    logical_bytes,
    padded_bytes,
    padded_dimensions,
    parse_shape,
)
from pytest_tfperf.hlo.module import Shape

LAYOUTS = [
    ("f32[1024,10]{1,0:T(8,128)}", 40960, 524288),
    ("f32[100,1000]{1,0:T(8,128)}", 400000, 425984),
    ("bf16[4,512,512,64]{3,0,2,1:T(4,128)(2,1)}", 134217728, 268435456),
    ("bf16[2048,1,2048,128]{0,1,3,2:T(4,128)(2,1)}", 1073741824, 4294967296),
    ("f32[4,128,128,9,18]{4,3,0,2,1:T(8,128)}", 42467328, 536870912),
    ("f32[1024,245,64]{1,2,0:T(8,128)}", 64225280, 67108864),
    ("pred[64,512,2048]{2,1,0:T(8,128)E(32)}", 67108864, 268435456),
    ("s4[1000,1000]{1,0:T(8,128)(8,1)E(4)}", 500000, 512000),
    ("s8[1,4,4]{2,1,0:T(4,128)(4,1)}", 16, 512),
    ("f32[]{:T(128)}", 4, 512),
    ("bf16[6144]{0:T(1024)(128)(2,1)}", 12288, 12288),
    ("f32[<=100,60]{1,0:T(8,128)}", 24000, 53248),
    ("f32[3,5]{1,0:T(2,2)}", 60, 96),
    ("f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}", 49280, 49728),
    ("u8[5]{0:T(1024)(128)(4,1)L(16)}", 5, 1024),
    ("u8[5]{0:L(16)}", 5, 16),
    ("f32[0,128]{1,0:T(8,128)}", 0, 0),
    ("(f32[1024,10]{1,0:T(8,128)}, f32[]{:T(128)S(6)})", 40964, 524800),
    ("s4[1000]{0}", 1000, 1000),  # a narrow type takes a byte unless the layout packs it
    ("s4[3]{0:E(4)}", 2, 2),
    ("pred[7]", 7, 7),
    ("(f32[2]{0}, token[], ((), u8[4]{0}, /*index=3*/ f32[3,5]{1,0:T(2,2)}))", 72, 108),
    ("bf16[9,128]{1,0:T(8,128)(2,1)}", 2304, 4096),  # 8 rows, not 16: only the first tile pads
]


def test_padded_bytes_of_a_layout():
    for text, logical, padded in LAYOUTS:
        shape = parse_shape(text)
        assert (logical_bytes(shape), padded_bytes(shape)) == (logical, padded), text


def test_all_parts_of_a_layout_are_read():
    text = "bf16[<=100,60]{1,0:D(D,C)T(8,128)(2,1)L(16)#(u32)*(s64)E(8)S(5)SC(0:10,20)M(7)}"
    assert parse_shape(text) == Shape(
        "bf16", (100, 60), (True, False), (1, 0), ((8, 128), (2, 1)), 5, 8, tail_alignment=16
    )


INVALID = [
    ("", "no shape at ''"),
    ("f32", "no shape at 'f32'"),
    ("f33[8]", "did you mean 'f32'"),
    ("f32[8,x]", "are not sizes"),
    ("f32[-1]", "are not sizes"),
    ("f32[?]", "are not sizes"),
    ("f32[8]{0}{0}", "follows the shape"),
    ("f32[8,4]{1}", "is not an order of 2 dimensions"),
    ("f32[8,4]{1,1}", "is not an order of 2 dimensions"),
    ("f32[8,4]{a,b}", "is not a layout"),
    ("f32[8,4]{1,0:T}", "is not a layout"),
    ("f32[8,4]{1,0:T()}", "T() is not part"),
    ("f32[8,4]{1,0:T(8,*)}", "T(8,*) is not part"),
    ("f32[8,4]{1,0:T(0,128)}", "T(0,128) is not part"),
    ("f32[8,4]{1,0:Q(7)}", "Q(7) is not part"),
    ("f32[8,4]{1,0:E(x)}", "E(x) is not part"),
    ("(f32[8]", "a tuple is not closed"),
    ("(f32[8],", "no shape at ''"),
]


def test_an_invalid_shape_raises_a_layout_error():
    for text, says in INVALID:
        assert says in refusal(LayoutError, parse_shape, text), text


def test_a_decoded_shape_of_an_impossible_array_raises():
    for shape in [
        Shape("f32", (8, 4), (), (0,)),
        Shape("type 77", (8,)),
        Shape("f32", (8,), (), (0,), ((0,),)),
        Shape("f32", (8,), (), (0,), ((COMBINED,),)),
    ]:
        assert refusal(LayoutError, padded_bytes, shape), shape


def test_a_token_is_not_a_leaf():
    assert [leaf.dtype for leaf in leaves(parse_shape("(token[], (f32[2], opaque[]), u8[])"))] == [
        "f32",
        "u8",
    ]


def test_deeply_nested_tuples_raise():
    assert padded_bytes(parse_shape("(" * 100 + "f32[2]" + ")" * 100)) == 8
    with pytest.raises(LayoutError, match="more than 100 nested tuples"):
        parse_shape("(" * 5000 + "f32[2]" + ")" * 5000)


@st.composite
def tiled(draw, combine=True):
    rank = draw(st.integers(0, 4))
    sizes = tuple(draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank)))
    tile = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    if combine and rank >= 2 and draw(st.booleans()):
        tile = (COMBINED, *tile[: rank - 1])
    return Shape("u8", sizes, (), tuple(draw(st.permutations(range(rank)))), (tile,))


def tile_of(shape, index):
    """Return the tile that holds an element."""
    tile, slowest_first = shape.tiles[0], list(reversed(shape.minor_to_major))
    places = [(shape.dimensions[number], index[number]) for number in slowest_first]
    places = [(1, 0)] * (len(tile) - len(places)) + places
    outer, inner = places[: len(places) - len(tile)], places[len(places) - len(tile) :]
    if tile[0] == COMBINED:
        (_, first), (size, second), *rest = inner
        tile, inner = tile[1:], [(0, first * size + second), *rest]
    return (
        *(at for _, at in outer),
        *(at // step for (_, at), step in zip(inner, tile, strict=True)),
    )


@given(tiled())
def test_padded_bytes_cover_every_tile_that_holds_an_element(shape):
    tiles = {tile_of(shape, index) for index in product(*map(range, shape.dimensions))}
    volume = prod(size for size in shape.tiles[0] if size != COMBINED)
    assert padded_bytes(shape) == len(tiles) * volume
    assert logical_bytes(shape) == prod(shape.dimensions)


@given(
    tiled(),
    st.integers(1, 40),
    st.sampled_from([0, 1, 2, 4, 8, 16, 32]),
    st.sampled_from(["pred", "s4", "u2", "bf16", "f32", "c128"]),
)
def test_padded_bytes_are_at_least_logical_bytes(shape, alignment, bits, dtype):
    shape = replace(shape, dtype=dtype, tail_alignment=alignment, element_bits=bits)
    assert padded_bytes(shape) >= logical_bytes(shape) > 0


@given(tiled(combine=False))
def test_an_array_of_whole_tiles_is_not_padded(shape):
    tile = shape.tiles[0][-len(shape.dimensions) :] if shape.dimensions else ()
    whole = list(shape.dimensions)
    for number, step in zip(shape.minor_to_major, reversed(tile), strict=False):
        whole[number] *= step
    shape = replace(shape, dimensions=tuple(whole), tiles=(tile or (1,),))
    assert padded_bytes(shape) == logical_bytes(shape)
    assert padded_dimensions(shape) == shape.dimensions


@given(tiled(combine=False), st.data())
def test_growing_a_dimension_to_a_full_tile_adds_no_bytes(shape, data):
    padded = padded_dimensions(shape)
    grown = tuple(
        data.draw(st.integers(size, most))
        for size, most in zip(shape.dimensions, padded, strict=True)
    )
    assert padded_bytes(replace(shape, dimensions=grown)) == padded_bytes(shape) >= prod(padded)


@given(tiled())
def test_layout_text_is_parsed_back(shape):
    text = f"u8[{','.join(map(str, shape.dimensions))}]{layout_text(shape)}"
    assert parse_shape(text) == replace(shape, dynamic=(False,) * len(shape.dimensions))
