"""Dead code, counted by hand, and the user's source lines."""

from helpers.hlo import module, op, parameters
from helpers.xspace import field

from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import source_line
from pytest_tfperf.hlo.walk import without_dead_code


def test_dead_code_is_removed_but_parameters_and_callees_stay():
    add, idle = parameters("f32[]"), [op("i", "parameter", "f32[]")]
    main = [
        *parameters("f32[8]", "f32[9]"),
        op("a", "tanh", "f32[8]", "p0"),
        op("dead", "map", "f32[8]", "a", called=["idle"]),
        op("deader", "tanh", "f32[8]", "dead"),
        op("r", "map", "f32[8]", "a", called=["add"]),
    ]
    live = without_dead_code(module(idle=idle, add=add, main=main))
    assert [one.name for one in live.entry.instructions.values()] == ["p0", "p1", "a", "r"]
    assert [part.name for part in live.computations.values()] == ["add", "main"]
    assert without_dead_code(live) == live


def test_source_line_ignores_installed_packages():
    for file, line in [
        ("model.py", "model.py:7"),
        ("/home/me/model.py", "model.py:7"),
        ("", None),
        ("dummy_file_name", None),
        ("/venv/lib/python3.11/site-packages/tensorflow/python/framework/ops.py", None),
        ("C:\\py\\site-packages\\keras\\a.py", None),
        ("/usr/lib/python3/dist-packages/jax/core.py", None),
    ]:
        assert source_line(op("a", "tanh", "f32[8]", source_file=file, source_line=7)) == line, file


INSTALLED = "/venv/lib/python3.11/site-packages/flax/linear.py"


def test_the_user_s_frame_of_an_instruction_is_its_source():
    """Newer JAX names the frame of each instruction; the module has the frames' lines."""
    for frame, file in [
        (1, "model.py"),
        (2, "loss.py"),  # its caller is model.py
        (3, "loss.py"),  # a layer of a package, whose caller is loss.py
        (4, INSTALLED),  # without a caller
        (5, ""),  # without a place
        (0, ""),
        (-1, ""),
        (6, ""),
    ]:
        metadata = field(15, frame % 2**64) if frame else b""
        instruction = field(1, "r") + field(2, "constant") + field(7, metadata) + field(35, 1)
        part = field(1, "main") + field(2, instruction) + field(5, 1) + field(6, 1)
        names = ("model.py", "loss.py", INSTALLED)
        places = [field(1, number) + field(3, 10 * number) for number in (1, 2, 3)]
        frames = [(1, 0), (2, 1), (3, 2), (3, 0), (9, 0)]  # (place, caller)
        index = b"".join(field(1, name) for name in names)
        index += b"".join(field(3, place) for place in places)
        index += b"".join(field(4, field(1, place) + field(2, caller)) for place, caller in frames)
        made = decode_module(field(1, "m") + field(3, part) + field(6, 1) + field(17, index), "m")
        line = 10 * (names.index(file) + 1) if file else 0
        assert (made.entry.root.source_file, made.entry.root.source_line) == (file, line), frame
