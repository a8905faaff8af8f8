"""
Damaged run files, and what must hold of whatever the commands make of them.

    RunFiles(folder, seed).take(raw)          # raises if a command fails in another way than by one sentence

Every command gives an answer or refuses the file in one sentence. What it refuses changes no file. Nothing that is written
holds NaN or Infinity, or text that controls a terminal.
"""

from helpers.commands import (
    GOOD,
    USAGE,
    check_answer,
    check_numbers,
    contents,
    ran,
    strict_json,
)

from pytest_tfperf.report.run_file import ENDINGS, read_run


class RunFiles:
    """
    A project with a test file, stored baselines and a good run file, for mutants of that run file.

    It lies in a folder `project` of an otherwise empty folder, so that writing elsewhere shows.
    """

    def __init__(self, folder, seed):
        self._outer, self._root = folder, folder / "project"
        self._root.mkdir(parents=True)
        self._good, self._mutant = self._root / "good.json", self._root / "mutant.json"
        self._good.write_bytes(seed)
        for test in read_run(self._good).tests:
            (self._root / test.file).write_text("")
        ran("accept", self._good, "--rootdir", self._root, "--tfperf-record-noisy")
        self._before = contents(folder)
        self.n_taken = self.n_read = 0
        """Mutants, and those of them that were read."""

    def take(self, raw):
        """Give a mutant to every command that reads run files; their number picks the options."""
        number, good, mutant = self.n_taken, self._good, self._mutant
        self.n_taken += 1
        mutant.write_bytes(raw)
        self._before[mutant] = raw
        try:
            option = [(), ("-v",), ("--json",)][number % 3]
            is_read = self._shows("show", mutant, *option) != USAGE
            self.n_read += is_read
            self._shows("compare", *[(good, mutant), (mutant, good)][number % 2], *option)
            for ending in ENDINGS if is_read else ENDINGS[number % len(ENDINGS) :][:1]:
                self._reports(ending, "report", mutant)
            self._reports(ENDINGS[number % len(ENDINGS)], "compare", good, mutant)
            self._accepts()
        finally:
            self._restore()

    def _shows(self, *words):
        status = self._runs(*words)
        assert contents(self._outer) == self._before, f"{words[0]} wrote a file"
        return status

    def _runs(self, *words):
        status, out, err = ran(*words)
        check_answer(status, out, err, as_json="--json" in words)
        return status

    def _reports(self, ending, *words):
        path = self._root / f"out{ending}"
        status = self._runs(*words, "-o", path)
        written = contents(self._outer)
        text = written.pop(path, b"").decode("utf-8")
        assert written == self._before, f"{words[0]} wrote another file"
        assert bool(text) == (status != USAGE), "a refused file left a report"
        check_numbers(text)
        if ending == ".json" and text:
            strict_json(text)
            read_run(path)
        path.unlink(missing_ok=True)

    def _accepts(self):
        """Whatever is accepted can be read again, and does not count twice."""
        words = ("accept", self._mutant, "--rootdir", self._root)
        status = self._runs(*words)
        written = contents(self._outer)
        if status != GOOD:
            assert written == self._before, "what was not accepted changed a file"
            return
        for path, content in written.items():
            if content != self._before.get(path):
                assert "__tfperf__" in path.parts, path
                strict_json(content.decode("utf-8"))
        assert self._runs(*words) != USAGE, "what was accepted cannot be read again"
        assert contents(self._outer) == written, "a run counts twice"

    def _restore(self):
        for path, content in contents(self._outer).items():
            if path not in self._before:
                path.unlink()
            elif content != self._before[path]:
                path.write_bytes(self._before[path])
