import pytest


@pytest.fixture
def stand_in(monkeypatch, tmp_path_factory):
    """Puts a shell script on PATH in the place of Graphviz's dot, before all else there; gives the folder it lies in."""

    def put(script):
        folder = tmp_path_factory.mktemp("bin")
        (folder / "dot").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "dot").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return folder

    return put
