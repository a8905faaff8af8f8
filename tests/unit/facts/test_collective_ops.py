"""Collectives of HLO: what their text and their bytes tell, and groups in each of XLA's notations."""

from helpers.pods import all_reduce, array, hlo_proto, replica_groups
from helpers.xspace import field, varint

from pytest_tfperf.facts.collectives import Collective, collective_in, collective_of, members
from pytest_tfperf.hlo.decode import module_at
from pytest_tfperf.protobuf import Message, Record


def test_the_text_of_an_instruction_tells_opcode_bytes_and_groups():
    assert collective_in(all_reduce("[4,2]<=[2,4]T(1,0)")) == Collective(
        "all-reduce", 4096 * 1024 * 4, "[4,2]<=[2,4]T(1,0)"
    )


TEXTS = [
    (
        "%ag = (f32[8]{0}, f32[32]{0}) all-gather-start(f32[8]{0} %x), replica_groups={{0,1,2,3}}, dimensions={0}",
        Collective("all-gather-start", 128, "{{0,1,2,3}}"),
    ),
    (
        "%rs = bf16[4,2]{1,0} reduce-scatter(bf16[8,2]{1,0} %x), replica_groups={{0,1},{2,3}}, to_apply=%add",
        Collective("reduce-scatter", 16, "{{0,1},{2,3}}"),
    ),
    (
        "%many = (f32[2]{0}, /*index=1*/f32[3]{0}) all-reduce(f32[2]{0} %a, f32[3]{0} %b), replica_groups={}",
        Collective("all-reduce", 20, "{}"),
    ),
    (
        "%cp = f32[8]{0} collective-permute(f32[8]{0} %x), source_target_pairs={{0,1},{1,0}}",
        Collective("collective-permute", 32, "{{0,1},{1,0}}"),
    ),
    (
        "%s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} %x, token[] %t), channel_id=2",
        Collective("send", 32, ""),
    ),
    (
        "%sd = token[] send-done((f32[8]{0}, u32[], token[]) %s), channel_id=2",
        Collective("send-done", None, ""),
    ),
    ("%odd = f99[8] all-reduce(f99[8] %x)", Collective("all-reduce", None, "")),
    ("%fusion.1 = f32[8]{0} fusion(f32[8]{0} %all-reduce.1), kind=kLoop", None),
    ("all-reduce.1", None),
    ("", None),
]


def test_what_each_text_tells():
    for text, found in TEXTS:
        assert collective_in(text) == found, text


GROUPS = [
    ("{}", ()),
    ("{{0,1,2}}", ((0, 1, 2),)),
    ("{{0,2},{1,3}}", ((0, 2), (1, 3))),
    ("[2,3]<=[6]", ((0, 1, 2), (3, 4, 5))),
    ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
    ("[1,65536]<=[65536]", (tuple(range(65536)),)),
    ("[1,65537]<=[65537]", None),
    ("[2,3]<=[7]", None),
    ("[2,3]<=[6]T(1)", None),
    ("[0,0]<=[0]", None),
    ("[99999999999,1]<=[99999999999]", None),
    ("[1,1]<=[" + ",".join("1" * 33) + "]", None),
    ("mesh[x=2]", None),
    ("", None),
]


def test_groups_are_read_in_each_notation():
    for text, groups in GROUPS:
        assert members(text) == groups, text


def found_in(raw):
    """The collectives of the module in an HloProto, and its devices."""
    message = Message(raw, "made")
    [span] = Record(message, 0, len(raw), "HloProto").spans(1)
    module = module_at(message, *span)
    found = {op.name: collective_of(op) for op in module.entry.instructions.values()}
    return {name: one for name, one in found.items() if one}, module.devices


def test_the_bytes_of_a_module_tell_the_same():
    raw = hlo_proto(
        "jit_step",
        ("all-reduce.1", "all-reduce", array(4), replica_groups((0, 1), (2, 3))),
        ("add.1", "add", array(4), b""),
        ("all-gather.1", "all-gather", array(16), replica_groups()),
        (
            "permute",
            "collective-permute",
            array(4),
            field(52, field(2, 1)) + field(52, field(1, 1)),
        ),
        assignment=((2, 3, 0, 1),),
    )
    found, devices = found_in(raw)
    assert found == {
        "all-reduce.1": Collective("all-reduce", 16, "{{0,1},{2,3}}"),
        "all-gather.1": Collective("all-gather", 64, "{}"),
        "permute": Collective("collective-permute", 16, "{{0,1},{1,0}}"),
    }
    assert devices == (2, 3, 0, 1)


def test_newer_modules_list_devices_apart():
    iota = b"".join(
        (
            field(1, 4),
            field(2, 2),
            field(3, b"".join(map(varint, (2, 4)))),
            field(4, b"".join(map(varint, (1, 0)))),
        )
    )
    listed = field(87, field(1, field(1, varint(0) + varint(1))))
    raw = hlo_proto(
        "m",
        ("a", "all-reduce", array(1), field(87, field(2, iota))),
        ("b", "all-reduce", array(1), listed),
        assignment=((0, 2), (1, 3)),
    )
    found, devices = found_in(raw)
    assert [found[name].groups for name in "ab"] == ["[4,2]<=[2,4]T(1,0)", "{{0,1}}"]
    assert devices == (0, 1, 2, 3), "global id = replica × computations + computation"


def test_an_uneven_assignment_tells_nothing():
    assert found_in(hlo_proto("m", assignment=((0, 1), (2,)))) == ({}, ())
