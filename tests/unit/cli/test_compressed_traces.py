"""Each command that takes a trace gives the same answer for a compressed one."""

import gzip
import itertools

from helpers.traces import SYNTHETIC

from pytest_tfperf.cli.main import main

PLAIN = SYNTHETIC / "g1_gpu_modern.xplane.pb"
COMMANDS = {
    "analyze": ("analyze", "{trace}"),
    "check": ("check", "{trace}", "--max-input-bound", "5%"),
    "chrome": ("export", "{trace}", "-o", "{out}.json"),
    "compare": ("compare", "{trace}", "{trace}"),
    "padding": ("padding", "{trace}"),
}


def answer(command, trace, folder, capsys):
    """Return status, output, messages and the written files of a command, without the trace's path."""
    folder.mkdir()
    try:
        status = main([word.format(trace=trace, out=folder / "out") for word in command])
    except SystemExit as error:
        status = error.code
    texts = [
        text.replace(str(trace), "T").replace(str(folder), "F") for text in capsys.readouterr()
    ]
    return status, texts, [path.read_bytes() for path in sorted(folder.iterdir())]


def test_the_answer_is_that_for_the_plain_trace(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # paths of other lengths would wrap elsewhere
    contents = {"": PLAIN.read_bytes(), ".gz": gzip.compress(PLAIN.read_bytes())}
    for in_logdir, command in itertools.product([False, True], COMMANDS):
        found = []
        for ending, content in contents.items():
            logdir = tmp_path / f"{command}_{in_logdir}{ending}"
            trace = logdir / "plugins" / "profile" / "run" / f"host.xplane.pb{ending}"
            trace.parent.mkdir(parents=True)
            trace.write_bytes(content)
            given = logdir if in_logdir else trace
            status, texts, files = answer(COMMANDS[command], given, logdir / "written", capsys)
            texts = [text.replace("host.xplane.pb.gz", "host.xplane.pb") for text in texts]
            found.append((status, [" ".join(text.split()) for text in texts], files))
        assert found[0] == found[1], (in_logdir, command)
        assert found[0][0] != 2, (in_logdir, command)
