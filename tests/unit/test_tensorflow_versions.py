"""Versions of TensorFlow: the oldest that is accepted, in code, packaging and documents."""

import re

import pytest
from helpers.paths import ROOT
from packaging.requirements import Requirement

from pytest_tfperf.frameworks.tensorflow import OLDEST, too_old

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_accepted_or_unknown_versions_are_not_refused():
    for version in ["2.18.0", "2.18.0rc1", "2.22.0rc0", "2.100.0", "3.0", "", "?"]:
        assert too_old(version) is None, version


@pytest.mark.parametrize("version", ["2.17.1", "2.9.0", "1.15.5", "2.16.2-rocm"])
def test_an_older_version_is_refused_with_both_numbers(version):
    assert f"needs TensorFlow 2.18 or newer, and this is {version}" in too_old(version)


def test_packaging_and_documents_name_the_same_versions():
    oldest, newest = ".".join(map(str, OLDEST)), "2.22"
    extras = re.findall(r'"tensorflow(?:-cpu)?>=(\S+),<2\.(\d+)', PROJECT)
    assert extras == [(oldest, "23")] * 3
    for page in ("README.md", "docs/reference/compatibility.md"):
        assert f"{oldest} to {newest}" in (ROOT / page).read_text(encoding="utf-8"), page


def test_each_platform_installs_the_build_that_has_wheels_for_it():
    for system, machine, name in [
        ("linux", "x86_64", "tensorflow-cpu"),
        ("win32", "AMD64", "tensorflow-cpu"),
        ("linux", "aarch64", "tensorflow"),
        ("darwin", "arm64", "tensorflow"),
        ("darwin", "x86_64", "tensorflow"),
    ]:
        platform = {"sys_platform": system, "platform_machine": machine}
        marked = [
            Requirement(text) for text in re.findall(r'^    "(tensorflow\S*;.*)",$', PROJECT, re.M)
        ]
        assert len(marked) == 4, (system, machine)  # two of the extra [cpu], two of [test]
        assert [one.name for one in marked if one.marker.evaluate(platform)] == [name] * 2, (
            system,
            machine,
        )
