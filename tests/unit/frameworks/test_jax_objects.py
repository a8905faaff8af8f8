"""The programs that JAX holds, by the name of their modules, and whose its functions are."""

import sys
from types import SimpleNamespace

import pytest
from helpers.xspace import field

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks import jax_objects
from pytest_tfperf.frameworks.jax_objects import JaxPrograms, instances, program_type
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


def held():
    return JaxPrograms(*instances(program_type()))


def why(programs, module="jit_step"):
    found = programs.named(module)
    assert isinstance(found, Unknown)
    return found.why


def test_programs_of_one_name_have_numbers(jax):
    jax()
    alive = [MeshComputation(name, 3 + n) for n, name in enumerate(["jit(<lambda>)"] * 2)]
    alive.append(MeshComputation("jit(step)", 9))
    found = held().named("jit__lambda")
    assert sorted((one.number, one.unoptimised) for one in found) == [
        (3, b"program 3"),
        (4, b"program 4"),
    ]
    assert [one.number for one in held().named("jit_step")] == [9]
    assert held().named("jit_other") == ()
    assert len(alive) == 3


def test_programs_stay_alive_until_they_are_asked_for(jax):
    jax()
    alive = [MeshComputation("jit(step)", 7)]
    programs = held()
    alive.clear()
    assert [one.unoptimised for one in programs.named("jit_step")] == [b"program 7"]


def test_a_program_that_was_never_compiled_ran_nowhere(jax):
    jax()
    alive = MeshComputation("jit(step)", 7, executable=False)
    assert held().named("jit_step") == ()
    assert alive._executable is None


def test_a_program_of_several_devices_is_not_that_of_one(jax):
    jax()
    alive = MeshComputation("jit(step)", 7, partitions=4)
    (program,) = held().named("jit_step")
    assert "jit(step) runs on 4 devices" in program.unoptimised.why
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
    assert said in why(held())


def test_without_jax_there_is_no_program(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert "does not show its programs" in why(held())


def test_an_error_of_a_private_part_is_named(jax):
    jax()
    alive = MeshComputation("jit(step)", 7)
    alive.hlo = lambda: 1 / 0
    alive._executable.xla_executable.hlo_modules = list
    (program,) = held().named("jit_step")
    said = r"jit\(step\) could not be read as HLO"
    with pytest.raises(CaptureError, match=f"{said}: ZeroDivisionError: division by zero"):
        _ = program.unoptimised
    with pytest.raises(CaptureError, match=f"{said}: IndexError"):
        _ = program.number


class Function:
    def __init__(self, module, name, calls):
        self.__module__, self.__name__ = module, name
        if calls is not None:
            self._cache_size = lambda: calls


@pytest.mark.parametrize("traced", [(), ("solve",)])
def test_a_name_of_both_is_the_user_s_if_only_his_function_was_called(monkeypatch, traced):
    monkeypatch.setattr(jax_objects, "users_traced", lambda: dict.fromkeys(traced, 1))
    both = True  # a trace does not tell them apart
    cases = [  # calls of JAX's function and of the user's
        (0, 1, {}),
        (1, 1, {"solve": both}),
        (1, 0, {"solve": both}),
        (0, 0, {"solve": both}),
        (None, None, {"solve": both}),  # this version of JAX does not count
    ]
    for own, users, found in cases:
        functions = [
            Function("jax.numpy.linalg", "solve", own),
            Function("test_it", "solve", users),
        ]
        for order in (functions, functions[::-1]):
            assert jax_objects.own_functions(order) == found, (own, users)


def test_a_function_of_jax_that_the_user_compiles_again_is_the_user_s(monkeypatch):
    monkeypatch.setattr(jax_objects, "users_traced", dict)
    own = Function("jax.numpy", "dot", 0)

    def mapped():
        """As `jax.vmap` returns it."""

    mapped.__wrapped__ = own
    for inner in (own, mapped):
        again = Function("jax.numpy", "dot", 1)
        again.__wrapped__ = inner
        assert jax_objects.own_functions([own, again]) == {}, inner
    own._cache_size = lambda: 1
    assert jax_objects.own_functions([own, again]) == {"dot": True}


def test_a_name_of_jax_alone_is_its_own(monkeypatch):
    monkeypatch.setattr(jax_objects, "users_traced", lambda: {"gone": 1})
    own = [Function("jax._src.numpy.ufuncs", name, 0) for name in ("add", "gone")]
    users = [Function("test_it", "step", 2), Function("jax._src.pmap", "mapped", 1)]
    assert jax_objects.own_functions([*own, *users]) == {"add": False, "gone": True}
