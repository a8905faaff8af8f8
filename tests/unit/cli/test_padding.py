"""`tfperf padding`: HLO text with tiles and without, traces, and what cannot be read."""

import json
from textwrap import dedent

import pytest
from helpers.hlo import encoded, module, op, parameters, trace_of
from helpers.traces import real_trace
from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.cli.main import main

pytestmark = pytest.mark.usefixtures("wide_terminal")

TILED = dedent("""\
    HloModule m, is_scheduled=true

    ENTRY main {
      x = f32[100,1000]{1,0:T(8,128)} parameter(0)
      w = f32[1000,10]{0,1:T(8,128)} parameter(1)
      ROOT d = f32[100,10]{1,0:T(8,128)} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="dense" source_file="model.py" source_line=9}
    }
    """)
UNTILED = TILED.replace(":T(8,128)", "").replace(", is_scheduled=true", "")
MEASURED = (425984 + 64 * 1024 + 52 * 1024) / (400_000 + 40_000 + 4_000) - 1


@pytest.fixture
def file(tmp_path):
    def write(text, name="a.hlo"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def printed(capsys, *arguments):
    """The one profile in the JSON, and the exit status."""
    status = main(["padding", "--json", *arguments])
    content = json.loads(capsys.readouterr().out)
    assert content["format"] == 2
    (profile,) = content["profiles"]
    return profile, status


def test_tiles_are_measured(file, capsys):
    path = file(TILED)
    assert main(["padding", path]) == 0
    assert capsys.readouterr() == (
        dedent(f"""\
            {path}

            metric                 value
            --------------------  ------  ------------------
            padding_overhead      22.7 %  measured, TPU v5e
            mxu_padding_overhead   110 %  estimated, TPU v5e

            Padding on a TPU v5e (measured)
            array  made by    shape                        padded            bytes  padded bytes  line        try
            -----  ---------  ---------------------------  -------------  --------  ------------  ----------  -------------------------
            d      dot dense  f32[100,10]{{1,0:T(8,128)}}    f32[104,128]   3.91 KiB        52 KiB  model.py:9  10 → 128: saves 46.1 KiB
            x      parameter  f32[100,1000]{{1,0:T(8,128)}}  f32[104,1024]   391 KiB       416 KiB              100 → 104: saves 15.6 KiB
            w      parameter  f32[1000,10]{{0,1:T(8,128)}}   f32[1024,16]   39.1 KiB        64 KiB              10 → 16: saves 23.4 KiB
            """),
        "",
    )
    profile, status = printed(capsys, path)
    value = profile["metrics"]["padding_overhead"]
    assert (status, value["value"], value["source"], value["detail"]["padding"]) == (
        0,
        MEASURED,
        "hlo",
        "measured",
    )
    assert sorted(profile["metrics"]) == ["mxu_padding_overhead", "padding_overhead"]


def test_without_tiles_it_is_predicted_for_the_generation(file, capsys):
    profile, status = printed(capsys, file(UNTILED), "--tpu", "v6e")
    value = profile["metrics"]["padding_overhead"]
    assert (status, value["source"], value["detail"]["padding"], value["detail"]["tpu"]) == (
        0,
        "predicted",
        "predicted",
        "v6e",
    )
    assert value["detail"]["low"] <= value["value"] < value["detail"]["high"]
    main(["padding", file(UNTILED)])
    assert "TPU v5e (predicted)" in capsys.readouterr().out


def test_dead_code_is_not_predicted(file, capsys):
    dead = UNTILED.replace(
        "  ROOT",
        "  dead = f32[1000,1000]{1,0} dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n  ROOT",
    )
    with_dead, _ = printed(capsys, file(dead))
    without, _ = printed(capsys, file(UNTILED))
    assert with_dead["metrics"] == without["metrics"]


def test_optimised_hlo_of_another_device_is_said_to_predict_worse(file, capsys):
    profile, _ = printed(capsys, file(TILED.replace(":T(8,128)", "")))
    assert "before optimisation predicts better" in " ".join(profile["notes"])


def test_verbose_adds_all_arrays_and_the_alignment_on_gpus(file, capsys):
    many = "".join(f"  p{n} = f32[99,99]{{1,0:T(8,128)}} parameter({n + 2})\n" for n in range(6))
    text = TILED.replace("  ROOT", many + "  ROOT")
    assert main(["padding", file(text)]) == 0
    short = capsys.readouterr().out
    assert "and 4 more (-v shows more)" in short
    assert "GPU alignment" not in short
    assert main(["padding", "-v", file(text)]) == 0
    shown = capsys.readouterr().out
    assert "more" not in shown
    assert "GPU alignment (by NVIDIA's rules)" in shown
    assert "10 → 12" in shown


def test_text_is_known_by_its_first_word_too(file, capsys):
    assert printed(capsys, file(TILED, "module_0001.after_optimizations"))[1] == 0


def test_nothing_that_counts_is_unknown_and_status_3(file, capsys):
    small = "HloModule m\nENTRY e {\nROOT p = f32[8]{0:T(128)} parameter(0)\n}"
    assert main(["padding", file(small)]) == 3
    assert (
        "padding_overhead is unknown: none of the 1 arrays that the executables keep"
        in capsys.readouterr().out
    )
    profile, status = printed(capsys, file(small.replace(":T(128)", "")))
    assert (status, profile["metrics"]["padding_overhead"]["value"]) == (3, None)
    assert profile["metrics"]["padding_overhead"]["why"]


def test_what_cannot_be_understood_is_status_2_and_names_the_line(file, capsys):
    for text, said in (
        (TILED.replace("{1,0:T(8,128)} dot", "{1:T(8,128)} dot"), "a.hlo:6: "),
        (
            TILED.replace("f32[100,1000]", "f33[100,1000]"),
            "'f33' is not an element type; did you mean 'f32'?",
        ),
        (TILED.replace("f32[100,1000]", "f32[?,1000]"), "a.hlo:4: "),
        (
            "no HLO at all",
            "a.hlo:1: not HLO text, which begins with a line 'HloModule …': 'no HLO at all'",
        ),
        ("", "a.hlo:1: not HLO text"),
    ):
        assert main(["padding", file(text)]) == 2, text
        captured = capsys.readouterr()
        assert captured.out == "", text
        assert captured.err.startswith("tfperf: "), text
        assert said in captured.err


def test_files_that_are_none_and_generations_that_are_none_are_status_2(file, tmp_path, capsys):
    (tmp_path / "b.hlo").write_bytes(b"HloModule \xff")
    for arguments in (
        [str(tmp_path / "none.hlo")],
        [str(tmp_path / "none.pb")],
        [str(tmp_path / "b.hlo")],
        [str(tmp_path)],
        [file(TILED), "--tpu", "v9"],
    ):
        assert main(["padding", *arguments]) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err[:8]) == ("", "tfperf: ")


def test_a_trace_of_a_cpu_is_predicted(tmp_path, capsys):
    made = module(main=[*parameters("f32[100,1000]"), op("a", "tanh", "f32[100,1000]", "p0")])
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(trace_of({"f(1)": made}, [1]))
    profile, status = printed(capsys, str(path), "--tpu", "v4")
    assert (status, profile["metrics"]["padding_overhead"]["source"]) == (0, "predicted")
    path.write_bytes(trace_of({"f(1)": made}, []))
    assert "no step ran an executable" in " ".join(printed(capsys, str(path))[0]["notes"])


def test_the_recorded_tpu_trace_has_none(capsys):
    path = real_trace("tpu_v6e_jax_inference")
    profile, status = printed(capsys, str(path), "--tpu", "v2")
    value = profile["metrics"]["padding_overhead"]
    assert (status, value["value"], value["detail"]["padding"], value["detail"]["tpu"]) == (
        0,
        0.0,
        "measured",
        "v6e",
    )


def test_instructions_that_do_not_fit_their_operands_are_status_2(file, capsys):
    for change in (
        ("={1}", "={7}"),
        (
            "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "convolution(x, w), dim_labels=b0f_0io->b0f",
        ),
    ):
        for text in (TILED, UNTILED):
            assert main(["padding", file(text.replace(*change))]) == 2, change
            assert "does not fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "tpu", "noted"), [("TPU v4", "v4", False), ("TPU v99", "v6e", True)]
)
def test_the_generation_is_that_of_the_trace_if_it_says_so(tmp_path, capsys, device, tpu, noted):
    core = plane(
        "/device:TPU:0", line("XLA Modules", at("f(1)", 1, 2)), stats={"device_type_string": device}
    )
    made = module(main=parameters("f32[100,1000]"))
    kept = plane("/host:metadata", metadata={"f(1)": {"Hlo Proto": field(1, encoded(made))}})
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(
        space(plane("/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1))), core, kept)
    )
    profile, status = printed(capsys, str(path), "--tpu", "v6e")
    assert (status, profile["metrics"]["padding_overhead"]["detail"]["tpu"]) == (0, tpu)
    assert any("does not name its TPU generation" in note for note in profile["notes"]) == noted
    assert profile["metrics"]["padding_overhead"]["detail"]["padding"] == (
        "predicted" if noted else "estimated"
    )


def test_a_trace_without_all_hlo_of_its_steps_is_unknown(tmp_path, capsys):
    core = plane(
        "/device:TPU:0",
        line("XLA Modules", at("f(1)", 1, 2), at("g(2)", 3, 4)),
        stats={"device_type_string": "TPU v4"},
    )
    host = plane("/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1)))
    kept = plane(
        "/host:metadata",
        metadata={
            "f(1)": {"Hlo Proto": field(1, encoded(module(main=parameters("f32[100,1000]"))))}
        },
    )
    path = tmp_path / "a.xplane.pb"
    for planes, words in (
        ([host, core, kept], "HLO of 1 of the 2 executables that ran"),
        ([host, core], "no HLO in the trace: XLA had compiled"),
    ):
        path.write_bytes(space(*planes))
        profile, status = printed(capsys, str(path))
        values = profile["metrics"].values()
        assert (status, [value["value"] for value in values]) == (3, [None, None])
        assert all(words in value["why"] for value in values)
