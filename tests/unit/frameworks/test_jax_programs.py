"""The program that an executable was made of, by the number in its name, or why there is none."""

import sys
from types import SimpleNamespace

import pytest
from helpers.xspace import field

from pytest_tfperf.frameworks.jax_programs import JaxPrograms
from pytest_tfperf.values import Unknown


class MeshComputation:
    """A lowered program as JAX 0.7 to 0.10 keeps it."""

    def __init__(self, name, number, partitions=1, executable=True):
        proto = field(1, "jit_f") + field(5, number)
        module = SimpleNamespace(as_serialized_hlo_module_proto=lambda: proto)
        runs = SimpleNamespace(xla_executable=SimpleNamespace(hlo_modules=lambda: [module]))
        shared = {"mhlo.num_partitions": partitions, "mhlo.num_replicas": 1}
        self._name, self._executable = name, runs if executable else None
        self._hlo = SimpleNamespace(operation=SimpleNamespace(attributes=shared))
        self.raw = f"program {number}".encode()

    def stablehlo(self):
        return self._hlo

    def hlo(self):
        return SimpleNamespace(as_serialized_hlo_module_proto=lambda: self.raw)


@pytest.fixture
def jax(monkeypatch):
    """A module `jax` of a version, with private parts."""

    def made(version="0.10.2", kind=MeshComputation):
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(jit=None, __version__=version))
        private = SimpleNamespace(MeshComputation=kind) if kind else SimpleNamespace()
        monkeypatch.setitem(sys.modules, "jax._src.interpreters.pxla", private)

    return made


def why(executable, programs=None):
    found = (programs or JaxPrograms()).unoptimised(executable)
    assert isinstance(found, Unknown)
    return found.why


def test_programs_of_one_name_are_told_apart_by_their_numbers(jax):
    jax()
    alive = [MeshComputation("jit(<lambda>)", number) for number in (3, 4)]
    programs = JaxPrograms()
    assert programs.unoptimised("jit__lambda(4)") == b"program 4"
    assert programs.unoptimised("jit__lambda(3)") == b"program 3"
    assert "keep its jax.jit function alive" in why("jit__lambda(5)", programs)
    assert "does not hold the program of jit__lambda as it was" in why("jit__lambda", programs)
    assert "jit_step" in why("jit_step(3)", programs)
    assert len(alive) == 2


def test_programs_stay_alive_until_they_are_asked_for(jax):
    jax()
    alive = [MeshComputation("jit(step)", 7)]
    programs = JaxPrograms()
    alive.clear()
    assert programs.unoptimised("jit_step(7)") == b"program 7"


def test_a_program_that_was_never_compiled_ran_nowhere(jax):
    jax()
    alive = MeshComputation("jit(step)", 7, executable=False)
    assert "keep its jax.jit function alive" in why("jit_step(7)")
    assert alive._executable is None


def test_a_program_of_several_devices_is_not_that_of_one(jax):
    jax()
    alive = MeshComputation("jit(step)", 7, partitions=4)
    assert "jit_step runs on 4 devices" in why("jit_step(7)")
    assert alive.raw


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        ("0.6.2", MeshComputation, "JAX 0.6.2 drops the programs of functions"),
        ("0.10.2", None, "this version of JAX does not show its programs"),
        ("0.11.0", dict, "this version of JAX does not show its programs"),
    ],
)
def test_versions_that_show_no_program(jax, version, kind, said):
    jax(version, kind)
    assert said in why("jit_step(7)")


def test_without_jax_there_is_no_program(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert "does not show its programs" in why("jit_step(7)")


def test_an_error_of_a_private_part_is_the_reason(jax):
    jax()
    alive = MeshComputation("jit(step)", 7)
    alive.hlo = lambda: 1 / 0
    assert "jit_step could not be read as HLO: ZeroDivisionError: division by zero" in why(
        "jit_step(7)"
    )
