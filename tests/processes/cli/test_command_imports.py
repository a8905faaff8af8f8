import json
import subprocess
import sys

from pytest_tfperf.cli.main import COMMANDS


def test_a_command_imports_no_module_of_another():
    code = (
        "import json, sys; from pytest_tfperf.cli.main import command_parser; "
        "command_parser('trace_commands'); print(json.dumps(sorted(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    loaded = {name.removeprefix("pytest_tfperf.cli.") for name in json.loads(output.stdout)}
    assert loaded & set(COMMANDS.values()) == {"trace_commands"}
    assert not loaded & {"_pytest", "filelock", "numpy", "tabulate", "tensorflow"}
