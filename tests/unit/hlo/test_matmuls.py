"""Dots and convolutions read as matrix multiplications, with sizes counted by hand."""

from helpers.hlo import dot, labels, module, op, parameters, window

from pytest_tfperf.hlo.products import ConvolutionWindows, Matmul, matmul_of

FORWARD, INPUT, KERNEL = "b01f_01io->b01f", "b01f_01oi->b01f", "f01b_i01o->01bf"


def read(opcode, result, *shapes, **more):
    """Read the only operation of a module as a matrix multiplication."""
    names = [f"p{number}" for number in range(len(shapes))]
    made = module(main=[*parameters(*shapes), op("x", opcode, result, *names, **more)])
    return matmul_of(made.entry.root, made.entry.operands(made.entry.root))


def convolved(result, data, kernel, dimensions, windows):
    return read("convolution", result, data, kernel, convolution=labels(dimensions), window=windows)


def test_a_dot_has_free_contracted_and_batch_sizes():
    found = read("dot", "f32[3,8,16]", "f32[3,8,4]", "f32[3,4,16]", dot=dot([2], [1], [0], [0]))
    assert found == Matmul(rows=8, columns=16, depth=4, batch=3)
    assert found.flops == 2 * 3 * 8 * 16 * 4
    assert found.aligned_sizes == (("rows", 8), ("columns", 16), ("depth", 4))


def test_a_convolution_has_a_row_for_each_window():
    found = convolved("f32[2,5,5,16]", "f32[2,7,7,8]", "f32[3,3,8,16]", FORWARD, window(3, 3))
    windows = ConvolutionWindows(
        examples=2,
        positions=25,
        own_positions=25,
        taps=9,
        channels_in=8,
        channels_out=16,
        is_kernel_gradient=False,
    )
    assert found == Matmul(rows=50, columns=16, depth=72, windows=windows)
    assert found.aligned_sizes == (("channels in", 8), ("channels out", 16))


def test_a_dilated_input_has_fewer_positions_of_its_own():
    found = convolved("f32[2,9,9,8]", "f32[2,4,4,16]", "f32[3,3,8,16]", INPUT, window(3, 3, base=2))
    assert (found.rows, found.columns, found.depth) == (2 * 81, 8, 16 * 9)
    assert (found.windows.positions, found.windows.own_positions) == (81, 16)


def test_a_kernel_gradient_sums_over_examples_and_positions():
    found = convolved("f32[3,3,8,16]", "f32[2,7,7,8]", "f32[2,5,5,16]", KERNEL, window(5, 5))
    assert (found.rows, found.columns, found.depth) == (8 * 9, 16, 2 * 25)
    assert found.windows.is_kernel_gradient
    assert (found.windows.channels_in, found.windows.channels_out) == (8, 16)


def test_a_convolution_without_a_window_is_a_plain_product():
    found = read("convolution", "f32[8,5]", "f32[8,4]", "f32[4,5]", convolution=labels("bf_io->bf"))
    assert found == Matmul(rows=8, columns=5, depth=4)


def test_other_instructions_are_not_matrix_multiplications():
    for opcode, more in [
        ("add", {}),
        ("custom-call", {"custom_call_target": "__onednn$matmul"}),
        ("custom-call", {"custom_call_target": "__cublas$gemm"}),  # its configuration is missing
        ("convolution", {}),  # its dimension numbers are missing
    ]:
        assert read(opcode, "f32[8,8]", "f32[8,8]", "f32[8,8]", **more) is None, (opcode, more)
