"""Wheels with the compiled decoder and without it, and the decoder under AddressSanitizer."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.paths import ROOT

from pytest_tfperf.trace.event_decoder import SOURCE

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]
COMPILER = os.environ.get("CC", "cc")
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what a wheel is made from."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    leave_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "pytest_tfperf", folder / "pytest_tfperf", ignore=leave_out)
    return folder


def wheel(checkout, tmp_path, **environment):
    """Build a wheel; return its tag, and the names of its files that are not Python."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    environment = os.environ | environment
    result = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        names = {Path(name).name for name in archive.namelist()}
    return made.stem.partition("-py3-")[2], names, result.stdout + result.stderr


@needs_compiler
def test_a_wheel_has_the_compiled_decoder_and_not_its_source(checkout, tmp_path):
    tag, names, _ = wheel(checkout, tmp_path)
    assert tag == f"none-{PLATFORM}"
    assert "compiled_decoder.so" in names
    assert "compiled_decoder.c" not in names


def test_a_wheel_without_it_is_for_every_platform(checkout, tmp_path):
    (checkout / SOURCE.relative_to(ROOT)).with_suffix(".so").write_bytes(b"left by another build")
    for number, (environment, said) in enumerate(
        [
            ({"CC": "false -m64"}, "No C compiler that works: NumPy decodes traces. Command"),
            ({"HATCH_BUILD_NO_HOOKS": "true"}, ""),
        ]
    ):
        tag, names, output = wheel(checkout, tmp_path / str(number), **environment)
        assert tag == "none-any", environment
        assert not {name for name in names if "compiled_decoder" in name}, environment
        assert "event_decoder.py" in names
        assert said in output


def test_a_compiler_that_does_not_work_is_said_and_compiles_nothing(checkout, monkeypatch):
    """What the build hook makes of values of CC."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    said = []
    app = SimpleNamespace(display_info=said.append, display_warning=said.append)
    hook = module.EventDecoder(str(checkout), {}, None, None, str(checkout), "wheel", app)
    for compiler, wanted in [
        ("no-such-compiler", "No C compiler: NumPy decodes traces."),
        ("", "No C compiler: NumPy decodes traces."),
        ("false -m64", "No C compiler that works: NumPy decodes traces. Command"),
        ("true", "No C compiler that works: NumPy decodes traces."),
        ("cc '", "NumPy decodes traces. No closing quotation"),
        (shlex.quote(str(ROOT / "README.md")), "No C compiler that works: NumPy decodes traces."),
        *(
            [
                (f"{COMPILER} -c", "No C compiler that works: NumPy decodes traces."),
                (f"{COMPILER} -E", "No C compiler that works: NumPy decodes traces."),
            ]
            if shutil.which(COMPILER)
            else []
        ),
    ]:
        monkeypatch.setenv("CC", compiler)
        data = {}
        hook.initialize("standard", data)
        assert data == {}, compiler
        assert wanted in said.pop(), compiler
        assert said == []


@needs_compiler
@pytest.mark.nightly
def test_no_byte_outside_of_a_trace_is_read(tmp_path):
    """Damaged traces, decoded by code that checks each access to memory."""
    where = [COMPILER, "-print-file-name=libasan.so"]
    checker = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(checker).is_absolute():
        pytest.skip("needs the library of AddressSanitizer")
    library = tmp_path / "checked.so"
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    options = ["-g", "-shared", "-fPIC", "-DTFPERF_SOURCE=0", *checks, "-o", library]
    subprocess.run([COMPILER, *options, SOURCE], check=True)
    script = tmp_path / "decode.py"
    script.write_text(f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from helpers.fuzz import mutant
from helpers.traces import SYNTHETIC
from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace import event_decoder
from pytest_tfperf.trace.xspace import decode_trace
event_decoder.LIBRARY = Path({str(library)!r})
event_decoder.SOURCE = event_decoder.LIBRARY.with_suffix(".c")  # not there, as in a wheel
event_decoder.SHORT = 0
assert event_decoder.compiled_code()._name == {str(library)!r}
n_read = 0
for path in sorted(SYNTHETIC.glob("*.pb")):
    for seed in range(300):
        try:
            decode_trace(mutant(path.read_bytes(), seed))
            n_read += 1
        except TraceError:
            pass
print(n_read)
""")
    checked = {"LD_PRELOAD": checker, "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"}
    environment, command = os.environ | checked, [sys.executable, script]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 300
