"""
Damaged traces, and what must hold of what the commands and exports make of them; `helpers.fuzz` makes the damage.

    TraceCommands(folder, raw).take(mutant(raw, seed))
"""

import gzip

from helpers.commands import GOOD, USAGE, check_answer, check_numbers, contents, ran, strict_json

OPTIONS = (
    ("analyze", "-vv"),
    ("analyze", "--json"),
    ("analyze",),
    ("check", "-v", "--max-input-bound=5%", "--max-step-time=1ms", "--max-retraces=0"),
    ("padding", "-v"),
)
EXPORTS = (".json", ".json.gz", ".pftrace", ".txt", ".dot")


class TraceCommands:
    """A folder with a good trace, for damaged ones: each is given to every export, and to commands in turn."""

    def __init__(self, folder, raw):
        self._folder = folder
        self._good, self._mutant = folder / "good.xplane.pb", folder / "mutant.xplane.pb"
        self._good.write_bytes(raw)
        self.n_taken = self.n_read = 0
        """Traces, and those of them that were read."""

    def take(self, raw):
        self._mutant.write_bytes(raw)
        before, number = contents(self._folder), self.n_taken
        self.n_taken += 1
        command, *options = OPTIONS[number % len(OPTIONS)]
        status = self._runs(command, self._mutant, *options)
        self.n_read += status != USAGE
        both = (self._good, self._mutant)
        self._runs(
            "compare", *both[:: (1, -1)[number % 2]], *[(), ("--json",), ("-v",)][number % 3]
        )
        assert contents(self._folder) == before, "a command wrote a file"
        for ending in EXPORTS:
            self._exports(ending, before)
        if number % 8 == 0:
            self._writes_page()

    def _runs(self, *words):
        status, out, err = ran(*words)
        check_answer(status, out, err, as_json="--json" in words)
        return status

    def _exports(self, ending, before):
        path = self._folder / f"out{ending}"
        status = self._runs("export", self._mutant, "-o", path)
        assert path.exists() == (status == GOOD), "what failed left a file"
        if path.exists():
            content = path.read_bytes()
            if ".json" in ending:
                strict_json(
                    (gzip.decompress(content) if ending.endswith(".gz") else content).decode(
                        "ascii"
                    )
                )
            path.unlink()
        assert contents(self._folder) == before, "another file was written"

    def _writes_page(self):
        path = self._folder / "page.html"
        status = self._runs("analyze", self._mutant, "-o", path)
        assert path.exists() == (status != USAGE)
        if path.exists():
            check_numbers(path.read_text("utf-8"))
            path.unlink()
