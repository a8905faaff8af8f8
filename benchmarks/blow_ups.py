"""
Give the commands files of almost 1 MB that hold much of one thing, and measure their CPU time and memory.

    python benchmarks/blow_ups.py                                   # all forms, some minutes
    python benchmarks/blow_ups.py trace --only 'gpus' --bytes 100000

Forms are those of tests/helpers/blow_ups.py: traces, HLO text, run files and baselines. Each command runs in a process of its
own, which the system ends at 20 s of CPU time or 4 GB of addresses. CPU time and peak memory are those of `resource.getrusage`.
It prints a line for each form, then the most expensive form of each command. The exit status is 1 if a command took more than
5 s or 1 GB, or ended with a traceback or a signal.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.blow_ups import ENDINGS, FORMS, content  # noqa: E402
from helpers.paths import DATA  # noqa: E402

MOST_S, MOST_MB = 5.0, 1000
ALLOWED_S, ALLOWED_BYTES = 20, 4 << 30
CLI = ("-m", "pytest_tfperf.cli.main")
COMPARE = "import sys; sys.path.insert(0, sys.argv[1]); import helpers.blow_ups as b; b.compare(*sys.argv[2:])"
GOOD = {"trace": DATA / "fuzz" / "trace" / "sample.xplane.pb", "run": DATA / "fuzz" / "run" / "sample.json"}  # fmt: skip
COMMANDS = {
    "trace": {
        "analyze": ("analyze", "{file}"),
        "page": ("analyze", "{file}", "-o", "{out}.html"),
        "chrome": ("export", "{file}", "-o", "{out}.json"),
        "check": ("check", "{file}", "--max-input-bound=5%", "--max-step-time=1ms"),
        "padding": ("padding", "{file}", "-v"),
        "compare": ("compare", "{good}", "{file}"),
    },
    "hlo": {"padding": ("padding", "{file}", "-v")},
    "run": {
        "show": ("show", "{file}", "-v"),
        "page": ("report", "{file}", "-o", "{out}.html"),
        "markdown": ("report", "{file}", "-o", "{out}.md"),
        "csv": ("report", "{file}", "-o", "{out}.csv"),
        "compare": ("compare", "{good}", "{file}"),
        "accept": ("accept", "{file}", "--rootdir", "{folder}"),
    },
    "baseline": {"compare and accept": ()},
}
"""Arguments of each command; a baseline is compared and accepted over in one process, without pytest."""


@dataclass
class Cost:
    """The cost of a command."""

    form: str
    seconds: float
    megabytes: float
    status: int
    error: str

    @property
    def fault(self):
        """The reason why the cost is too high, or the command gave no answer; empty if all is well."""
        if self.status not in (0, 1, 2, 3) or "Traceback" in self.error:
            return f"ended with {self.status}: {self.error[-300:]}"
        if self.seconds > MOST_S or self.megabytes > MOST_MB:
            return "too expensive"
        return ""


def arguments_of(kind, command, form, path):
    """The arguments of Python for a command."""
    if kind == "baseline":
        return ("-c", COMPARE, str(ROOT / "tests"), form.partition(":")[0], str(path))
    places = {"file": path, "out": path.parent / "out", "good": GOOD.get(kind, ""), "folder": path.parent}  # fmt: skip
    return (*CLI, *(word.format(**places) for word in COMMANDS[kind][command]))


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (ALLOWED_S, ALLOWED_S))
    resource.setrlimit(resource.RLIMIT_AS, (ALLOWED_BYTES, ALLOWED_BYTES))


def measured(form, arguments):
    """Run Python with these arguments, and return the cost."""
    with tempfile.TemporaryFile() as error:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=error,
            preexec_fn=limit,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        error.seek(0)
        text = error.read().decode("utf-8", "replace")
    seconds, megabytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
    return Cost(form, seconds, megabytes, process.returncode, text)


def costs_of(kind, only, size):
    """Print a line for each form of a kind; return the costs by command."""
    found = {command: [] for command in COMMANDS[kind]}
    for form in (form for form in FORMS[kind] if only in form):
        raw = content(kind, form, size)
        shown = []
        for command in found:
            with tempfile.TemporaryDirectory(prefix="tfperf-blow-ups-") as folder:
                path = Path(folder) / f"form{ENDINGS[kind]}"
                path.write_bytes(raw)
                cost = measured(form, arguments_of(kind, command, form, path))
            found[command].append(cost)
            shown.append(f"{command} {cost.seconds:.1f} s {cost.megabytes:.0f} MB")
            if cost.fault:
                shown[-1] += f" FAULT: {cost.fault}"
        print(f"{kind}, {form}, {len(raw):,} bytes: {', '.join(shown)}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*FORMS, []], help=", ".join(FORMS))  # fmt: skip
    parser.add_argument("--only", default="", help="forms whose name has this text")
    parser.add_argument("--bytes", type=int, default=990_000, help="the size of the files")
    given = parser.parse_args()
    n_faults, lines = 0, ["", "| file | command | forms | most CPU | of | most memory | of |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind in given.kinds or FORMS:
        for command, costs in costs_of(kind, given.only, given.bytes).items():
            n_faults += sum(bool(cost.fault) for cost in costs)
            slow = max(costs, key=lambda cost: cost.seconds, default=None)
            if slow:
                large = max(costs, key=lambda cost: cost.megabytes)
                lines.append(
                    f"| {kind} | {command} | {len(costs)} | {slow.seconds:.1f} s | {slow.form} | {large.megabytes:.0f} MB | {large.form} |"
                )
    print("\n".join(lines))
    print(f"\n{n_faults} above {MOST_S:.0f} s or {MOST_MB} MB, or without an answer")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
